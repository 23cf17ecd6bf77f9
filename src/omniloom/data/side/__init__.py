"""Stores that stand beside a data set and are read by key."""

from omniloom.data.side.store import FileStore as FileStore
from omniloom.data.side.store import SideStore as SideStore
