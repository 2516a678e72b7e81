"""The refusals of the log that callers tell apart. All are `StorageFailedError`: nothing was acknowledged. Pure."""

from barnabas_raftlog.errors import StorageFailedError

__all__ = ["DiskFullError", "StorageBusyError"]


class DiskFullError(StorageFailedError):
    """There is no room on the disk. Nothing was changed; appends work again by themselves when there is room."""


class StorageBusyError(StorageFailedError):
    """The call must be tried again later; nothing was changed.

    More bytes wait for the disk than `StorageConfig.queued_bytes_max`, or a file cannot be opened or read for a reason
    that will pass (`disk_errors`).
    """
