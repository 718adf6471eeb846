// Cuts a stream of text before the first stop string without ever showing a part of that stop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// What is returned in total is the text up to the earliest start of any stop in it, however the text was
// cut into pushes. An Aho-Corasick automaton over bytes: time is linear in the text, whatever the stops.
//
// When a stop completes inside the possible beginning of a longer one that started earlier (stops
// "\n" and "fin\nZZ" after "fin\n"), the matcher waits until the earlier one is decided: stopped() may
// then turn true some bytes later, or in flush().
class StopMatcher {
 public:
  // No stops: everything passes. An empty stop string is an Error, and so are more than 8,192 bytes of
  // stops.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Text that is now safe to show: it is not, and cannot become, part of a stop. Empty once stopped.
  std::string push(std::string_view text);

  // Ends the stream: returns what was held back (up to a completed stop, if one was waiting).
  std::string flush();

  // True once a stop was completed; the text before it has been returned and nothing follows.
  bool stopped() const { return stopped_; }

 private:
  // State of the automaton: the longest suffix of the text that begins some stop.
  struct Node {
    explicit Node(uint32_t depth);
    std::array<int32_t, 256> next;
    uint32_t depth_bytes;
    uint32_t match_bytes = 0;  // length of the longest stop that ends here, 0 if none
  };

  static constexpr size_t kNone = std::string::npos;

  void add_stop(std::string_view stop);
  void link_failures();
  std::string finish();

  std::vector<Node> nodes_;  // [0] is the root; empty if there are no stops
  int32_t state_ = 0;
  std::string held_;            // text not yet returned
  size_t match_start_ = kNone;  // in held_: start of the earliest completed stop
  bool stopped_ = false;
};

}  // namespace quire
