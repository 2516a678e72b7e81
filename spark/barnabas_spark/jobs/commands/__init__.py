"""One module a job: its options and its help. What a job needs is loaded when it runs."""
