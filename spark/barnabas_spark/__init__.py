"""Spark data source and jobs."""
