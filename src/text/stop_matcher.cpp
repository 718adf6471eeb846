#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr int32_t kNoNode = -1;

// A node takes a kilobyte; stops come from requests, so their number of nodes needs a bound.
constexpr size_t kMaxStopBytes = 8192;

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  if (stops.empty()) return;
  size_t n_bytes = 0;
  for (const std::string& stop : stops) n_bytes += stop.size();
  if (n_bytes > kMaxStopBytes) {
    throw Error("the stop strings have " + std::to_string(n_bytes) + " bytes together, more than " +
                std::to_string(kMaxStopBytes));
  }
  nodes_.emplace_back(0);
  for (const std::string& stop : stops) add_stop(stop);
  link_failures();
}

StopMatcher::Node::Node(uint32_t depth) : depth_bytes(depth) { next.fill(kNoNode); }

void StopMatcher::add_stop(std::string_view stop) {
  if (stop.empty()) throw Error("a stop string is empty; leave it out or give it at least one character");
  size_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<uint8_t>(c);
    if (nodes_[node].next[byte] == kNoNode) {
      nodes_[node].next[byte] = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back(nodes_[node].depth_bytes + 1);
    }
    node = static_cast<size_t>(nodes_[node].next[byte]);
  }
  nodes_[node].match_bytes = nodes_[node].depth_bytes;
}

// Fills every missing transition, breadth first, with that of the longest proper suffix: after this the
// matcher makes exactly one step per byte.
void StopMatcher::link_failures() {
  struct Open {
    int32_t node;
    int32_t suffix;
  };
  std::vector<Open> queue;
  for (int32_t& child : nodes_[0].next) {
    if (child == kNoNode) {
      child = 0;
    } else {
      queue.push_back({child, 0});
    }
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    Node& node = nodes_[static_cast<size_t>(queue[i].node)];
    const Node& suffix = nodes_[static_cast<size_t>(queue[i].suffix)];
    node.match_bytes = std::max(node.match_bytes, suffix.match_bytes);
    for (size_t byte = 0; byte < 256; ++byte) {
      if (node.next[byte] == kNoNode) {
        node.next[byte] = suffix.next[byte];
      } else {
        queue.push_back({node.next[byte], suffix.next[byte]});
      }
    }
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  if (nodes_.empty()) return std::string(text);
  for (const char c : text) {
    held_ += c;
    state_ = nodes_[static_cast<size_t>(state_)].next[static_cast<uint8_t>(c)];
    const Node& node = nodes_[static_cast<size_t>(state_)];
    if (node.match_bytes > 0) match_start_ = std::min(match_start_, held_.size() - node.match_bytes);
    // Nothing that begins before the match can become a stop any more: the cut is decided.
    if (match_start_ != kNone && held_.size() - node.depth_bytes >= match_start_) return finish();
  }
  const size_t pending_start = held_.size() - nodes_[static_cast<size_t>(state_)].depth_bytes;
  std::string shown = held_.substr(0, pending_start);
  held_.erase(0, pending_start);
  if (match_start_ != kNone) match_start_ -= pending_start;
  return shown;
}

std::string StopMatcher::flush() {
  if (match_start_ != kNone) return finish();
  state_ = 0;
  return std::exchange(held_, {});
}

std::string StopMatcher::finish() {
  stopped_ = true;
  held_.resize(match_start_);
  match_start_ = kNone;
  return std::exchange(held_, {});
}

}  // namespace quire
