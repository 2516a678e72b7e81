"""State that lives in the partitions of an internal topic, on whichever broker leads each of them."""
