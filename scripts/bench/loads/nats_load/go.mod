module barnabas.invalid/bench/natsload

go 1.24

require github.com/nats-io/nats.go v1.48.0
