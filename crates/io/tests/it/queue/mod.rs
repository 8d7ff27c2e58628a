//! Tests of queue sets: the laws of their schedule in simulation, balance, and owners with threads.

mod balance;
mod files;
mod simulation;
mod threads;
mod transfers;
