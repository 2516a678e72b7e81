"""The members of the metadata quorum: how it is founded, and how they change."""
