"""The job `backfill`: writes rows of a lake into a topic. Begin with `marker`."""
