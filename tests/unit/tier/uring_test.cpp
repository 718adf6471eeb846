// io_uring on kernels that lack parts of it, or refuse it later: a filter of system calls stands for them.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>

#include "tier/mapped_bytes.h"
#include "unit/tier/devices.h"

namespace quire {
namespace {

// From now on the process' system call `number` ends with `error`. False where that cannot be had.
bool refuse(unsigned number, unsigned error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum Outcome { kAsItShould = 0, kWrong = 1, kCannotTell = 77 };

// In a process of its own, as a filter stays.
int outcome_of(const std::function<Outcome()>& test) {
  const pid_t child = fork();
  if (child == 0) _exit(test());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// As before Linux 5.6, which knows rings, but neither these transfers nor the question for them.
TEST(UringDevice, IsNotTakenWhereTheKernelCannotSayThatItTransfers) {
  const OwnFolder folder;
  const int outcome = outcome_of([&] {
    SlabFile file(folder.path());
    if (!refuse(SYS_io_uring_register, EINVAL)) return kCannotTell;
    const bool none = make_uring_device(file) == nullptr;
    return none && file.descriptor() >= 0 ? kAsItShould : kWrong;
  });
  if (outcome == kCannotTell) GTEST_SKIP() << "no filter of system calls here";
  EXPECT_EQ(outcome, kAsItShould);
}

// A ring that the kernel refuses to serve any more: each transfer ends with the error, now and later.
TEST(UringDevice, TransfersThatTheKernelDoesNotTakeEndWithItsError) {
  const OwnFolder folder;
  for (const int error : {EPERM, ENOMEM, EAGAIN}) {
    const int outcome = outcome_of([&] {
      SlabFile file(folder.path());
      const auto device = make_uring_device(file);
      if (device == nullptr || !refuse(SYS_io_uring_enter, static_cast<unsigned>(error))) return kCannotTell;
      const MappedBytes bytes(size_t{3} << 12);
      for (int round = 0; round < 2; ++round) {
        std::vector<Transfer> transfers;
        for (uint64_t i = 0; i < 3; ++i)
          transfers.push_back({i != 1, i << 12, bytes.data() + (i << 12), 4096, i});
        device->start(transfers);
        std::vector<FinishedTransfer> finished(2);
        size_t n_finished = 0;
        while (const size_t n = device->finish(finished)) {
          n_finished += n;
          for (size_t i = 0; i < n; ++i) {
            if (finished[i].result != -error) return kWrong;
          }
        }
        if (n_finished != 3) return kWrong;
      }
      return kAsItShould;
    });
    if (outcome == kCannotTell) GTEST_SKIP() << "no io_uring or no filter of system calls here";
    EXPECT_EQ(outcome, kAsItShould) << error;
  }
}

}  // namespace
}  // namespace quire
