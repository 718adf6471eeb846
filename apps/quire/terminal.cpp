#include "terminal.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "text/utf8_stream.h"

namespace quire::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch it");

void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);
}

}  // namespace

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw OutputClosed{};
  throw Error(std::string("stdout cannot be written: ") + std::strerror(errno));
}

void write_json(const nlohmann::ordered_json& object) {
  write_out(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void write_note(const std::string& text) {
  const bool dim = isatty(STDERR_FILENO) != 0;
  std::fprintf(stderr, dim ? "\033[2m%s\033[0m\n" : "%s\n", text.c_str());
}

void write_error(const std::string& sentence) {
  std::fprintf(stderr, "quire: %s\n", printable(sentence).c_str());
}

ProgressLine::ProgressLine(std::string what, bool wanted)
    : what_(std::move(what)), active_(wanted && isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (shown_percent_ >= 0) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(double share, const std::string& more) {
  const int percent = static_cast<int>(std::lround(share * 100));
  if (!active_ || (percent == shown_percent_ && more == shown_more_)) return;
  shown_percent_ = percent;
  shown_more_ = more;
  std::fprintf(stderr, "\r\033[2m%s: %d %%%s%s\033[0m\033[K", what_.c_str(), percent,
               more.empty() ? "" : ", ", more.c_str());
  std::fflush(stderr);
}

std::string printable(std::string_view text) {
  Utf8Stream characters;
  std::string valid = characters.push(text);  // first, which a sum would leave open
  valid += characters.flush();
  std::string out;
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    }
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string megabytes(uint64_t n_bytes) { return fixed(static_cast<double>(n_bytes) / 1e6, 1) + " MB"; }

// Without SA_RESTART, so that waiting for a line ends too.
void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

const std::atomic<bool>& interrupt_flag() { return interrupted; }

void clear_interrupt() { interrupted = false; }

}  // namespace quire::cli
