#pragma once
/// What a fork does to this process's connections.

namespace athanor::distributed {

/// Counts the forks this process has come through; groups and threads of another generation belong to the parent.
unsigned fork_generation();

/// From now on, forked children find /dev/null under this number. The end of a connection tells others that the
/// process is gone, and a listening port is free again: a child that outlives its parent must not hold either.
void keep_from_children(int fd);
/// Before the descriptor is closed or given away.
void share_with_children(int fd) noexcept;

}  // namespace athanor::distributed
