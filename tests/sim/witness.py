"""Carries out a driver's duties for a witness: drop its entries, or begin anew."""

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulator import Node, Simulator

__all__ = ["keep_what_a_witness_keeps"]


def keep_what_a_witness_keeps(sim: "Simulator", node: "Node") -> None:
    """Forget the entries that others have; or begin with nothing, if this is no witness any more and is to have all."""
    log = node.disk.log
    core = node.core
    if core.lacks_beginning:
        sim.counts["begun anew"] += 1
        log.install(0, 0, log.configuration)
        node.disk.is_uncertain = True
        node.disk.is_blank = True
        node.waiting.clear()
        node.reads.clear()
        sim.make_core(node)
        for peer in sorted(node.view):
            sim.after(1, partial(sim.introduce_peer, node, node.incarnation, peer))
        sim.schedule_tick(node)
        return
    index = min(core.forgettable_index, log.durable_index)
    if index >= log.first_index:
        sim.counts["forgotten"] += 1
        sim.history.on_forgotten(core, index, sim.disks)
        log.forget(index, core.configuration_place)
