//! Types that the programs and user space share. The library depends on neither aya nor the standard library.
#![no_std]

pub mod abi;
