"""Who votes in the metadata quorum: how it is founded, and how its members change."""
