"""Holds the levels of a cluster's features, as a broker tells them when a connection begins (KIP-584). Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from barnabas_clients.protocol.api_versions import ApiVersionsResponse

__all__ = ["Features"]


class Features(NamedTuple):
    """The finalized level of each feature by its name. `epoch` grows with each change; -1: nobody has told any."""

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Self:
        """Return what a broker has told: nothing, if it does not know itself yet, or is older than features are."""
        if response.finalized_features_epoch < 0:
            return cls()
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        return cls(response.finalized_features_epoch, levels)

    def level(self, name: str) -> int:
        """Return the level of a feature; 0 if it is not in force."""
        return self.levels.get(name, 0)

    def newer(self, told: "Features") -> "Features":
        """Return what another broker has told, unless that is older."""
        return told if told.epoch > self.epoch else self
