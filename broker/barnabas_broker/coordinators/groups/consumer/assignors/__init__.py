"""The assignors of the server, which divide the partitions of KIP-848 groups. Pure.

Read `roster.py` first, for what goes in and comes out. `ranges.py` and `uniform.py` are the two assignors; `balance.py`
is what `uniform` does where members subscribe to different topics. `built_in.py` has both by name.

Not here: rack-aware assignment. Kafka's server has none either.
"""
