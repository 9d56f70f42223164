//! A store behind a box, a reference or an `Arc` is a store.

use std::sync::Arc;

use crate::{Cleared, Haste, Listed, Look, Put, Result, Soon, Store, Thaw, Upload};

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<S: Store + ?Sized> Store for $pointer {
            fn location(&self) -> String {
                (**self).location()
            }
            fn is_far(&self) -> bool {
                (**self).is_far()
            }
            fn creates_atomically(&self) -> Result<bool> {
                (**self).creates_atomically()
            }
            fn may_come_late(&self, name: &str) -> bool {
                (**self).may_come_late(name)
            }
            fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
                (**self).list(prefix, each)
            }
            fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
                (**self).list_in_order(folders, each)
            }
            fn len(&self, name: &str) -> Result<Option<u64>> {
                (**self).len(name)
            }
            fn get(&self, name: &str) -> Result<Vec<u8>> {
                (**self).get(name)
            }
            fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(name, offset, buf)
            }
            fn freezes(&self) -> bool {
                (**self).freezes()
            }
            fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
                (**self).thaw(name, haste)
            }
            fn retain(&self, name: &str) -> Result<()> {
                (**self).retain(name)
            }
            fn retains(&self) -> bool {
                (**self).retains()
            }
            fn retention_ends_soon(&self, name: &str) -> Result<bool> {
                (**self).retention_ends_soon(name)
            }
            fn expect(&self, soon: Soon<'_>) {
                (**self).expect(soon);
            }
            fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
                (**self).put(name, bytes, how)
            }
            fn put_and_look(&self, name: &str, bytes: &[u8], looks: &[Look<'_>]) -> Result<()> {
                (**self).put_and_look(name, bytes, looks)
            }
            fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
                (**self).upload(name, len_hint)
            }
            fn sync(&self) -> Result<()> {
                (**self).sync()
            }
            fn delete(&self, name: &str) -> Result<()> {
                (**self).delete(name)
            }
            fn clear_unfinished(&self) -> Result<Cleared> {
                (**self).clear_unfinished()
            }
        }
    )*};
}

forward!(&S, Box<S>, Arc<S>);
