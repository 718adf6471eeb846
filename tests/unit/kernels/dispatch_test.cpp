// Which table of kernels is chosen, and that QUIRE_FORCE_ISA is obeyed: each case asks a child process, as
// the choice is made once in the life of a process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {
namespace {

struct Answer {
  std::string text;
  int status;
};

// Runs the child below with the variable set (or not, when null).
Answer ask_child(const char* forced) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return {"", -1};
  self[length] = '\0';
  std::string command =
      forced == nullptr ? "env -u QUIRE_FORCE_ISA" : "env QUIRE_FORCE_ISA='" + std::string(forced) + "'";
  command += " '" + std::string(self) + "' --gtest_filter=Child.SaysItsTable 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {"", -1};
  std::string text;
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  const int status = pclose(pipe);
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

// What the children run.
TEST(Child, SaysItsTable) {
  try {
    std::printf("<table %s>\n", ops().name);
  } catch (const Error& error) {
    std::printf("<error %s>\n", error.what());
  }
}

const char* widest() {
  for (const char* name : {"avx512", "avx2"}) {
    if (ops_by_name(name) != nullptr) return name;
  }
  return "scalar";
}

TEST(ForceIsa, TheForcedTableRuns) {
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    const Answer answer = ask_child(name);
    const std::string wanted = ops_by_name(name) != nullptr ? "<table " + std::string(name) + ">" : "<error ";
    EXPECT_NE(answer.text.find(wanted), std::string::npos) << answer.text;
    EXPECT_EQ(answer.status, 0);
  }
}

TEST(ForceIsa, AnUnknownNameIsAnError) {
  for (const char* name : {"avx1024", "AVX2", "sse", " "}) {
    const Answer answer = ask_child(name);
    EXPECT_NE(answer.text.find("<error QUIRE_FORCE_ISA: '" + std::string(name) + "'"), std::string::npos)
        << answer.text;
  }
}

TEST(ForceIsa, UnsetOrEmptyChoosesTheWidest) {
  const std::string wanted = "<table " + std::string(widest()) + ">";
  EXPECT_NE(ask_child(nullptr).text.find(wanted), std::string::npos);
  EXPECT_NE(ask_child("").text.find(wanted), std::string::npos);
}

TEST(OpsByName, TablesBearTheirNames) {
  ASSERT_NE(ops_by_name("scalar"), nullptr);
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    const Ops* table = ops_by_name(name);
    if (table != nullptr) {
      EXPECT_STREQ(table->name, name);
    }
  }
  EXPECT_EQ(ops_by_name("neon"), nullptr);
  EXPECT_EQ(ops_by_name(""), nullptr);
}

TEST(OpsByName, NoKernelIsMissingOrSharedBetweenSets) {
  std::set<const void*> seen;
  size_t n = 0;
  const auto add = [&](auto function) {
    ASSERT_NE(function, nullptr);
    seen.insert(reinterpret_cast<const void*>(function));
    ++n;
  };
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    const Ops* table = ops_by_name(name);
    if (table == nullptr) continue;
    for (int kind = 0; kind < kPanelKinds; ++kind) {
      add(table->linear_fast[kind]);
      ASSERT_NE(table->linear_precise[kind], nullptr);  // those of floats are the fast ones
    }
    for (int format = 0; format < kRowFormats; ++format) {
      add(table->store_keys[format]);
      add(table->store_values[format]);
      add(table->unpack[format]);
      add(table->score[format]);
      add(table->accumulate[format]);
    }
    add(table->rms_norm);
    add(table->softmax);
    add(table->merge);
  }
  EXPECT_EQ(seen.size(), n);
}

}  // namespace
}  // namespace quire
