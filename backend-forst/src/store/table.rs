//! Open tables: where their bytes are, and how blocks are had from there.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use weir_state_api::{BoxFuture, Environment, Error, ErrorKind, ObjectRef, Result, Spawner};

use super::block_cache::BlockKey;
use super::cache_id::CacheId;
use super::caches::Caches;
use super::ends::EndCopy;
use super::heat::Density;
use super::names::{ObjectKind, ObjectNames};
use super::object_store::ObjectStore;
use super::open_table::OpenTable;
use super::resources::ForstResources;
use super::single_flight::Wait;
use crate::format::{Block, BlockPlace, MetaPlace, TableMeta};

/// What the tables of one instance are read and written through.
#[derive(Debug)]
pub(crate) struct Tables {
    store: ObjectStore,
    spawner: Arc<dyn Spawner>,
    caches: Arc<Caches>,
}

impl Tables {
    pub(crate) fn new(environment: &Environment, resources: &ForstResources) -> Arc<Self> {
        let caches = Arc::clone(resources.caches());
        let (limits, slots) = (caches.request_limits.clone(), Arc::clone(&caches.request_slots));
        let total = Arc::clone(&caches.traffic);
        let store = ObjectStore::new(environment.store.clone(), limits, slots, total);
        Arc::new(Tables { store, spawner: Arc::clone(&environment.spawner), caches })
    }

    pub(crate) fn store(&self) -> &ObjectStore {
        &self.store
    }

    pub(crate) fn spawner(&self) -> &Arc<dyn Spawner> {
        &self.spawner
    }

    pub(crate) fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    /// A table that is in the store. Nothing is read yet.
    pub(crate) fn open(self: &Arc<Self>, object: ObjectRef, meta: MetaPlace) -> Arc<Table> {
        self.open_with(object, meta, None)
    }

    /// The same; there may be a copy of its end.
    pub(crate) fn open_with(
        self: &Arc<Self>,
        object: ObjectRef,
        meta: MetaPlace,
        end_copy: Option<EndCopy>,
    ) -> Arc<Table> {
        let shared = self.caches.open_table(CacheId::of_object(&object));
        let (content, tables) = (Content::Stored(object), Arc::clone(self));
        Arc::new(Table { content, meta, end_copy, shared, tables })
    }

    /// A table in memory, as long as it is not stored anywhere else.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when the bytes are not a table with that end.
    pub(crate) fn open_resident(
        self: &Arc<Self>,
        bytes: Bytes,
        meta: MetaPlace,
    ) -> Result<Arc<Table>> {
        let shared = self.caches.open_table(CacheId::unique());
        let (content, tables) = (Content::Resident(bytes), Arc::clone(self));
        let table = Table { content, meta, end_copy: None, shared, tables };
        let Content::Resident(bytes) = &table.content else { return Ok(Arc::new(table)) };
        let tail = (bytes.len() as u64 == meta.file_len())
            .then(|| usize::try_from(meta.offset).ok())
            .flatten();
        let Some(tail) = tail else {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("a table has {} bytes, not {}", bytes.len(), meta.file_len()),
            ));
        };
        let decoded = TableMeta::decode(&bytes[tail..], &meta, table.origin())?;
        table.shared.set_meta(Arc::new(decoded));
        Ok(Arc::new(table))
    }
}

/// A handle of one table: immutable bytes, in the store or in memory.
///
/// Blocks are had from the block cache, from local disk, from the store, in this order. Only the last
/// takes a future.
#[derive(Debug)]
pub(crate) struct Table {
    content: Content,
    meta: MetaPlace,
    end_copy: Option<EndCopy>,
    pub(super) shared: Arc<OpenTable>,
    pub(super) tables: Arc<Tables>,
}

#[derive(Debug)]
enum Content {
    Stored(ObjectRef),
    Resident(Bytes),
}

impl Table {
    /// The object it is, if it is in the store.
    pub(crate) fn object(&self) -> Option<&ObjectRef> {
        match &self.content {
            Content::Stored(object) => Some(object),
            Content::Resident(_) => None,
        }
    }

    /// Its bytes, if it is not in the store.
    pub(crate) fn resident_bytes(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Stored(_) => None,
            Content::Resident(bytes) => Some(bytes),
        }
    }

    /// Where its end is.
    pub(crate) fn meta_place(&self) -> &MetaPlace {
        &self.meta
    }

    /// Where its end can be read together with those of other tables.
    pub(super) fn end_copy(&self) -> Option<&EndCopy> {
        self.end_copy.as_ref()
    }

    /// Its length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.meta.file_len()
    }

    /// What errors call it.
    pub(crate) fn origin(&self) -> &str {
        self.object().map_or("a table in memory", |object| &object.path)
    }

    /// How much it is read.
    pub(crate) fn density(&self) -> Density {
        self.shared.heat.density(self.length())
    }

    /// Filter, index and properties, if they were read before. They stay in memory while the table is
    /// open.
    #[inline]
    pub(crate) fn meta_now(&self) -> Option<&Arc<TableMeta>> {
        self.shared.meta()
    }

    /// Filter, index and properties: from memory, from local disk, or with one read from the store, one
    /// for all who ask at the same time.
    ///
    /// # Errors
    /// The store's; [`Corrupt`](ErrorKind::Corrupt) names the object.
    pub(crate) fn load_meta(self: &Arc<Self>) -> BoxFuture<'static, Result<Arc<TableMeta>>> {
        if let Some(meta) = self.end_at_hand() {
            return std::future::ready(Ok(meta)).boxed();
        }
        let (wait, lead) = self.tables.caches.meta_reads.ask(self.shared.id);
        if let Some(lead) = lead {
            if let Some(meta) = self.meta_now() {
                lead.done([Ok(Arc::clone(meta))]);
            } else {
                let table = Arc::clone(self);
                let read = async move {
                    lead.done([table.read_meta().await.map_err(Arc::new)]);
                };
                self.tables.spawner.spawn(read.boxed());
            }
        }
        self.kept(wait)
    }

    /// What is waited for, kept by this handle too, should the leader's have been the last of another
    /// instance.
    pub(super) fn kept(
        self: &Arc<Self>,
        wait: Wait<Arc<TableMeta>>,
    ) -> BoxFuture<'static, Result<Arc<TableMeta>>> {
        let table = Arc::clone(self);
        let keep = move |meta: Arc<TableMeta>| {
            table.shared.set_meta(Arc::clone(&meta));
            meta
        };
        wait.result().map(|result| result.map(keep)).boxed()
    }

    /// Filter, index and properties, if they can be had without the store.
    pub(super) fn end_at_hand(&self) -> Option<Arc<TableMeta>> {
        self.meta_now().cloned().or_else(|| self.meta_on_disk())
    }

    pub(super) async fn read_meta(&self) -> Result<Arc<TableMeta>> {
        let range = self.meta.offset..self.meta.file_len();
        let bytes = self.tables.store.read_end(self.origin(), range).await?;
        self.keep_meta(&bytes)
    }

    /// Decodes and keeps the end of the table.
    pub(super) fn keep_meta(&self, tail: &[u8]) -> Result<Arc<TableMeta>> {
        self.keep_copied_meta(tail, self.origin())
    }

    /// Decodes and keeps a copy of the end, which stands in the object `origin`.
    pub(super) fn keep_copied_meta(&self, copy: &[u8], origin: &str) -> Result<Arc<TableMeta>> {
        let meta = Arc::new(TableMeta::decode(copy, &self.meta, origin)?);
        self.shared.set_meta(Arc::clone(&meta));
        Ok(meta)
    }

    /// Does not touch the store.
    fn meta_on_disk(&self) -> Option<Arc<TableMeta>> {
        let disk = self.tables.caches.disk.as_ref()?;
        let length = usize::try_from(self.meta.length).ok()?;
        let bytes = disk.read(self.shared.id, self.meta.offset, length)?;
        let meta = self.keep_meta(&bytes);
        if meta.is_err() {
            disk.remove_damaged(self.shared.id);
        }
        meta.ok()
    }

    /// A block, if it can be had without the store: from the block cache, which allocates nothing, from
    /// the table's bytes in memory, or from local disk. `None` also when the meta was not read yet.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for damage that no other copy can mend.
    #[inline]
    pub(crate) fn block_now(&self, block: usize) -> Result<Option<Block>> {
        if let Some(found) = self.tables.caches.blocks.get(self.key(block)) {
            return Ok(Some(found));
        }
        match self.meta_now() {
            Some(meta) => self.block_at_hand(self.key(block), &self.place(meta, block)?),
            None => Ok(None),
        }
    }

    /// A block that is not in the block cache, and goes there.
    pub(super) fn block_at_hand(&self, key: BlockKey, place: &BlockPlace) -> Result<Option<Block>> {
        let found = match &self.content {
            Content::Resident(bytes) => {
                // The index was checked against the length of the file.
                let start = place.offset as usize;
                let stored = bytes.slice(start..start + place.length as usize);
                Some(Block::decode(&stored, place, self.origin())?)
            }
            Content::Stored(_) => {
                let found = self.block_on_disk(place);
                self.shared.heat.add(u32::from(found.is_some()));
                found
            }
        };
        if let Some(block) = &found {
            self.tables.caches.blocks.insert(key, block.clone());
        }
        Ok(found)
    }

    /// A block from local disk; a file that is not as it was written is dropped.
    pub(super) fn block_on_disk(&self, place: &BlockPlace) -> Option<Block> {
        let disk = self.tables.caches.disk.as_ref()?;
        let stored = disk.read(self.shared.id, place.offset, place.length as usize)?;
        let block = Block::decode(&stored, place, self.origin());
        if block.is_err() {
            disk.remove_damaged(self.shared.id);
        }
        block.ok()
    }

    #[inline]
    pub(super) fn key(&self, block: usize) -> BlockKey {
        // The index of a table has fewer than 2^32 blocks.
        BlockKey { table: self.shared.id, block: block as u32 }
    }

    pub(super) fn place(&self, meta: &TableMeta, block: usize) -> Result<BlockPlace> {
        meta.block_place(block).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidUsage,
                format!("the table has {} blocks, none with number {block}", meta.block_count()),
            )
            .object(self.origin())
        })
    }

    /// A copy of it in the store, under a new name.
    ///
    /// # Errors
    /// Those of [`ObjectStore::put_new`] and [`ObjectStore::copy`].
    pub(crate) async fn copy_to(&self, names: &ObjectNames) -> Result<ObjectRef> {
        match &self.content {
            Content::Stored(object) => {
                self.tables.store.copy(object, names, ObjectKind::Table).await
            }
            Content::Resident(bytes) => {
                let parts = std::slice::from_ref(bytes);
                self.tables.store.put_new(names, ObjectKind::Table, parts).await
            }
        }
    }

    /// The same table as the object that a copy of it is. What was in memory goes to local disk.
    pub(crate) fn moved_to(&self, object: ObjectRef) -> Arc<Table> {
        let table = self.tables.open(object, self.meta);
        if let Some(meta) = self.meta_now() {
            table.shared.set_meta(Arc::clone(meta));
        }
        if let (Content::Resident(bytes), Some(disk)) = (&self.content, &self.tables.caches.disk)
            && let Some(mut file) = disk.begin(self.length(), None)
        {
            file.write(bytes);
            file.keep(table.shared.id, &table.shared.heat);
        }
        table
    }

    /// Deletes the object and the copy on local disk. For who knows that no handle names it and nobody
    /// reads it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn delete(&self) -> Result<()> {
        let Some(object) = self.object() else { return Ok(()) };
        self.drop_local();
        self.tables.store.delete(&object.path).await
    }

    /// Frees local disk: the table is not read any more.
    pub(crate) fn drop_local(&self) {
        if let Some(disk) = &self.tables.caches.disk {
            disk.remove(self.shared.id);
        }
    }
}
