"""The cluster's state: records, the image that they make, and both as bytes. Pure."""
