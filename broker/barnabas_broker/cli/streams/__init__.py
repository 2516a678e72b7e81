"""What produce and consume read and write: forms of records, places in a log, pipes."""
