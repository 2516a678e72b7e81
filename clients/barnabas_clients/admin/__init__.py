"""Administration of a cluster. `client` has `Admin`; the other files are the functions behind its methods."""
