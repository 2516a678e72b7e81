"""One module per Kafka API; `dispatch` maps keys and versions to them."""
