//! A shared pointer to a platform is a platform.

use alloc::sync::Arc;
use core::ops::Range;
use core::ptr::NonNull;

use super::{
    CpuId, CpuSet, Flush, GroupId, HookAnswer, HookedFault, IoError, Machine, MemoryRange, NodeId,
    Policy, Rescue, Sleep, SlotError, SpaceTag, Store, TaskToken, Victim, WindowSlot,
};
use crate::addr::Pfn;

macro_rules! forward {
    ($($pointer:ty),*) => { $(
        // SAFETY: a shared pointer to a machine is that machine; every call
        // goes to it unchanged.
        unsafe impl<P: Machine + Send + ?Sized> Machine for $pointer {
            fn cpus(&self) -> usize {
                (**self).cpus()
            }
            fn nodes(&self) -> usize {
                (**self).nodes()
            }
            fn node_of(&self, cpu: CpuId) -> NodeId {
                (**self).node_of(cpu)
            }
            fn frame_shift(&self) -> u32 {
                (**self).frame_shift()
            }
            fn memory_map(&self) -> &[MemoryRange] {
                (**self).memory_map()
            }
            fn distance(&self, from: NodeId, to: NodeId) -> u32 {
                (**self).distance(from, to)
            }
            #[inline]
            fn pin(&self) -> CpuId {
                (**self).pin()
            }
            #[inline]
            fn unpin(&self, cpu: CpuId) {
                (**self).unpin(cpu);
            }
            #[inline]
            fn frame(&self, frame: Pfn) -> NonNull<u8> {
                (**self).frame(frame)
            }
            fn window(&self, cpu: CpuId, slot: WindowSlot, frame: Pfn) -> NonNull<u8> {
                (**self).window(cpu, slot, frame)
            }
            fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
                (**self).close_window(cpu, slot);
            }
            fn flush(&self, from: CpuId, cpus: CpuSet<'_>, request: &Flush) {
                (**self).flush(from, cpus, request);
            }
            fn root_made(&self, root: Pfn) {
                (**self).root_made(root);
            }
            fn root_ends(&self, root: Pfn) {
                (**self).root_ends(root);
            }
            fn is_loaded(&self, space: SpaceTag) -> bool {
                (**self).is_loaded(space)
            }
            fn relax(&self, spins: u32) {
                (**self).relax(spins);
            }
            fn wake_reclaim(&self, node: NodeId) {
                (**self).wake_reclaim(node);
            }
        }
        impl<P: Sleep + Send + ?Sized> Sleep for $pointer {
            fn current_task(&self) -> TaskToken {
                (**self).current_task()
            }
            fn park(&self) {
                (**self).park();
            }
            fn unpark(&self, task: TaskToken) {
                (**self).unpark(task);
            }
        }
        impl<P: Store + Send + ?Sized> Store for $pointer {
            unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
                // SAFETY: the caller's promise.
                unsafe { (**self).read_page(store, index, frame) }
            }
            fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
                (**self).write_page(store, index, frame)
            }
            unsafe fn read_pages(
                &self,
                store: u64,
                first: u64,
                frames: &[Pfn],
            ) -> Result<(), IoError> {
                // SAFETY: the caller's promise.
                unsafe { (**self).read_pages(store, first, frames) }
            }
            fn write_pages(&self, store: u64, first: u64, frames: &[Pfn]) -> Result<(), IoError> {
                (**self).write_pages(store, first, frames)
            }
            fn write_slot(&self, store: u64, slot: u64, frame: Pfn) -> Result<(), SlotError> {
                (**self).write_slot(store, slot, frame)
            }
            fn has_swap_room(&self, store: u64) -> bool {
                (**self).has_swap_room(store)
            }
            fn slot_freed(&self, store: u64, slot: u64) {
                (**self).slot_freed(store, slot);
            }
            fn flush_store(&self, store: u64) -> Result<(), IoError> {
                (**self).flush_store(store)
            }
            fn write_speed(&self, store: u64) -> Option<u64> {
                (**self).write_speed(store)
            }
            fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
                (**self).discard_pages(store, pages)
            }
            fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
                (**self).find_page(store, index, stored)
            }
        }
        impl<P: Policy + Send + ?Sized> Policy for $pointer {
            fn out_of_memory(&self, victim: Option<Victim>) -> Rescue {
                (**self).out_of_memory(victim)
            }
            fn group_out_of_memory(&self, group: GroupId, victim: Option<Victim>) -> Rescue {
                (**self).group_out_of_memory(group, victim)
            }
            fn group_above_high(&self, group: GroupId, pages: u64) {
                (**self).group_above_high(group, pages);
            }
            fn fault_hook(&self, fault: &HookedFault) -> HookAnswer {
                (**self).fault_hook(fault)
            }
        }
    )* };
}

forward!(&P, Arc<P>);
