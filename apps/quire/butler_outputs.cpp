#include "butler_outputs.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/error.h"
#include "butler_record.h"
#include "terminal.h"

namespace quire::cli {
namespace {

// The process in the name of a file that AtomicFile has not finished: "NAME.new-PROCESS-NUMBER"; 0 for
// others.
pid_t process_of(std::string_view name, std::string_view finished) {
  constexpr std::string_view kMark = ".new-";
  if (!name.starts_with(finished) || !name.substr(finished.size()).starts_with(kMark)) return 0;
  name.remove_prefix(finished.size() + kMark.size());
  const char* const last = name.data() + name.size();
  pid_t process = 0;
  const auto [dash, error] = std::from_chars(name.data(), last, process);
  if (error != std::errc() || dash == last || *dash != '-' || process <= 0) return 0;
  unsigned long number = 0;
  const auto [end, bad] = std::from_chars(dash + 1, last, number);
  return bad == std::errc() && end == last ? process : 0;
}

// What processes that were killed have left of a file, as far as it is this user's and they are gone.
void remove_unfinished(const std::string& path) {
  const std::filesystem::path file(path);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const pid_t process = process_of(entry.path().filename().string(), file.filename().string());
    if (process == 0 || kill(process, 0) == 0 || errno != ESRCH) continue;
    struct stat info {};
    if (lstat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid()) {
      unlink(entry.path().c_str());
    }
  }
}

}  // namespace

ButlerOutputs::ButlerOutputs(const std::string& output)
    : predictor(output),
      log(beside(output, ".jsonl")),
      chart(beside(output, ".svg")),
      state(beside(output, ".state")) {}

void ButlerOutputs::check(const std::vector<std::string>& inputs) const {
  for (const std::string& path : {predictor, log, chart, state}) remove_unfinished(path);
  for (const std::string& path : {predictor, log, chart, state}) {
    for (const std::string& input : inputs) {
      std::error_code error;  // what is not there is no other file either
      if (input != "-" && std::filesystem::equivalent(path, input, error)) {
        throw Error(printable(path) + " would be written, and is read: it is the same file as " +
                    printable(input));
      }
    }
    const AtomicFile probe(path);
  }
}

void ButlerOutputs::write(std::span<const std::byte> predictor_bytes, const std::string& log_text,
                          const std::string& chart_text) const {
  AtomicFile log_file(log), chart_file(chart), predictor_file(predictor);
  log_file.write(std::as_bytes(std::span(log_text)));
  chart_file.write(std::as_bytes(std::span(chart_text)));
  predictor_file.write(predictor_bytes);
  log_file.commit();
  chart_file.commit();
  predictor_file.commit();
}

}  // namespace quire::cli
