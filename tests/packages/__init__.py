"""What users install: wheels, sdists, and what is in them."""
