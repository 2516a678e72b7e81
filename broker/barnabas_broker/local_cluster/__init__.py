"""Clusters on one machine: their files, their processes, and their supervisor."""
