"""Stores that stand beside a data set and are read by key, and what is kept of them until it is used."""

from omniloom.data.side.cache_pool import FileStoreCachePool as FileStoreCachePool
from omniloom.data.side.lazy import CachePool as CachePool
from omniloom.data.side.lazy import DirectLazy as DirectLazy
from omniloom.data.side.lazy import Lazy as Lazy
from omniloom.data.side.lazy import MockLazy as MockLazy
from omniloom.data.side.lazy import NoCachePool as NoCachePool
from omniloom.data.side.open import open_side_store as open_side_store
from omniloom.data.side.store import DecodeFileStore as DecodeFileStore
from omniloom.data.side.store import FileStore as FileStore
from omniloom.data.side.store import FileStoreDecoder as FileStoreDecoder
from omniloom.data.side.store import FileStoreWrapper as FileStoreWrapper
from omniloom.data.side.store import PrimaryFileStore as PrimaryFileStore
from omniloom.data.side.store import SideStore as SideStore
from omniloom.data.side.store import add_source_info as add_source_info
from omniloom.data.side.store import get_source_info as get_source_info
from omniloom.data.side.stores import JsonlFileStore as JsonlFileStore
from omniloom.data.side.stores import SystemFileStore as SystemFileStore
from omniloom.data.side.stores import WebdatasetFileStore as WebdatasetFileStore
