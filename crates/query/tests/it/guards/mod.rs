//! No statement ends the process: under a limit of memory, in a process of its own, what makes much
//! of little is answered or refused, and others are answered meanwhile.

mod bombs;
mod child;
mod groups;
mod hostile;
