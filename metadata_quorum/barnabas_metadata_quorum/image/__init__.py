"""The cluster's state: the records of the metadata log, the image that they make, and both as bytes. Pure."""
