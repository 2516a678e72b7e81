"""The assignors of consumer groups, which divide partitions, and the bytes that members exchange. Pure.

Read `assignor.py` first, then `subscription.py` for the bytes. `ranges.py` and `round_robin.py` divide by position.
`sticky.py` and `cooperative_sticky.py` go by the partitions that members hold already; `balance.py` has the search that
both share. `built_in.py` has all of them by name.

Not here: rack-aware assignment (KIP-881). A rack id is read and handed on, and no assignor looks at it.
"""
