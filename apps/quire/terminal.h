// What reaches the user: stdout that notices when nobody listens, notes on stderr, Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace quire::cli {

// stdout was closed by whoever read it.
struct OutputClosed {};

// Writes and flushes; throws OutputClosed, or Error when it cannot be written for another reason (a full
// disk).
void write_out(std::string_view text);
// One object and a newline; bytes that are not UTF-8 become U+FFFD.
void write_json(const nlohmann::ordered_json& object);

// A line on stderr; dim on a terminal.
void write_note(const std::string& text);
void write_error(const std::string& sentence);

// A line on stderr that is written over until it is gone; only on a terminal.
class ProgressLine {
 public:
  // `what` stands before the share. Shown only if wanted.
  ProgressLine(std::string what, bool wanted);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(double share) { show(share, {}); }
  // `more` stands behind the share, after a comma.
  void show(double share, const std::string& more);

 private:
  std::string what_;
  bool active_;
  int shown_percent_ = -1;
  std::string shown_more_;
};

// The text on one line: control characters and invalid UTF-8 as escapes.
std::string printable(std::string_view text);

// "138.2 MB"
std::string megabytes(uint64_t n_bytes);
// "1234.5"
std::string fixed(double value, int digits);

// From now on the first Ctrl-C sets a flag, and a second one while it is set ends the program.
void catch_interrupts();
const std::atomic<bool>& interrupt_flag();
void clear_interrupt();
// Thrown out of what is being done when the user pressed Ctrl-C.
struct Interrupted {};

}  // namespace quire::cli
