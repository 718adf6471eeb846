// Runs a fuzz target over files, where libFuzzer is not linked: every file named, and every file in the
// folders named. A target that finds a fault aborts, or the sanitizers do; replaying nothing is a failure.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes);

namespace {

bool replay(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return false;
  }
  const std::vector<char> text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  // Said first, so that the file is known when the target aborts; a copy of the exact size, so that
  // AddressSanitizer sees a read past the end.
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  size_t n_replayed = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths{argv[i]};
    if (std::filesystem::is_directory(argv[i])) {
      paths.assign(std::filesystem::directory_iterator(argv[i]), std::filesystem::directory_iterator());
    }
    for (const auto& path : paths) {
      if (!replay(path)) return 1;
      ++n_replayed;
    }
  }
  std::printf("replayed %zu files\n", n_replayed);
  return n_replayed > 0 ? 0 : 1;
}
