"""Segments: files of frames with their indexes, how they are written, read and checked."""
