"""Options of reads, streams and writes. `names` checks names, `values` reads values."""
