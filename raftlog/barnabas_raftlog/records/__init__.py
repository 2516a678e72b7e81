"""Record batches, format v2: the bytes on the wire are the bytes on disk. Pure."""
