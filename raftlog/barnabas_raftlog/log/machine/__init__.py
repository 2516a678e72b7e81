"""All that touches the operating system: files, descriptors, threads."""
