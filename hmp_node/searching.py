"""Puts the index of the search together: its worker, its embedder, and the job that fills it. Used by `node` alone."""

from __future__ import annotations

import contextlib

from hmp_node.actions.context import Context
from hmp_node.home import Home
from hmp_node.index.embedders import choose
from hmp_node.index.embedding import Embedding
from hmp_node.index.endpoint import Client
from hmp_node.index.filling import Filling
from hmp_node.index.index import Index
from hmp_node.index.settings import IndexSettings
from hmp_node.index.worker import Worker


async def put_together(
    home: Home, settings: IndexSettings, context: Context, *, stack: contextlib.AsyncExitStack
) -> Index:
    """The index over the context's store, given to the context; undone with ``stack``. BAD_CONFIG for an embedder
    that nobody knows.

    No process starts before something is searched, or indexed by the job ``Index.run``.
    """
    worker = Worker(idle_s=settings.idle_s, nice=settings.nice, cache=settings.cache_folder(home.path))
    stack.push_async_callback(worker.close)
    client = await stack.enter_async_context(Client(connect_s=settings.connect_s, home=home.path))
    embedding = Embedding(worker, client, settings)
    filling = Filling(context.db, choose(settings), worker, embedding, settings, now=context.now)
    index = Index(context.db, worker, embedding, filling, settings, store=home.store)
    context.index = index
    return index
