"""Clusters on one machine: their files, their processes, and the supervisor that starts and stops them."""
