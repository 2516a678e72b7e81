"""Administers a cluster. Begin with `client`; the other modules have the functions behind its methods."""
