"""Lets a broker go by what is set for it, or for all brokers, while it runs.

What is set lies in the metadata, so every change of the image that touches it comes by here, on every broker, and so
does what was set before a start. The parts that have a setting of their own take the new value; the topics follow the
broker's settings behind theirs as their turn comes (`Partitions.configure`).

Nothing that is stored can keep a broker from starting or from going on: what does not count is told by an event, once
for each change, and is passed over.
"""

from collections.abc import Callable

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.dynamic import BrokerSettings, settle
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.resource_configs import BROKER

from .context import BrokerContext

__all__ = ["LiveSettings"]


class LiveSettings:
    """See the module. `on_changed` hears of the settings before and after a change, for parts that no client meets."""

    def __init__(self, broker: BrokerContext, on_changed: Callable[[BrokerConfig, BrokerConfig], None]) -> None:
        self._broker = broker
        self._on_changed = on_changed

    def on_image(self, old: Image, new: Image) -> None:
        """Take in a change of the image. Subscribed to the metadata service."""
        broker = self._broker
        keys = (BROKER, str(broker.node_id)), (BROKER, "")
        of_broker, of_all = (new.resource_configs.get(key, {}) for key in keys)
        if all(old.resource_configs.get(key, {}) == new.resource_configs.get(key, {}) for key in keys):
            return
        self._settle(settle(broker.settings.started, of_broker, of_all))

    def _settle(self, settings: BrokerSettings) -> None:
        broker = self._broker
        before = broker.settings
        for complaint in settings.ignored:
            if complaint not in before.ignored:
                broker.events.add("setting ignored", f"node {broker.node_id}", complaint)
        broker.configure(settings)
        if settings.now != before.now:
            self._on_changed(before.now, settings.now)
