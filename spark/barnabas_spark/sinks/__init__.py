"""What a stream is written to beside topics: tables that take every micro-batch once."""
