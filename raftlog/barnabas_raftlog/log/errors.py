"""The refusals of the log that callers tell apart. All are `StorageFailedError`: nothing was acknowledged. Pure."""

from barnabas_raftlog.errors import StorageFailedError

__all__ = ["DiskFullError", "StorageBusyError"]


class DiskFullError(StorageFailedError):
    """No room on the disk. Nothing was changed; appends work again by themselves when there is room."""


class StorageBusyError(StorageFailedError):
    """More bytes wait for the disk than `StorageConfig.queued_bytes_max`. Nothing was changed; try again later."""
