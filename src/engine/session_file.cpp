#include "engine/session_file.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"

namespace quire {
namespace {

constexpr SectionFileKind kKind{"QUIREKVC", 2, "saved cache"};

// Every section that this program understands: mandatory ones among others are refused.
std::vector<std::string_view> known_sections() {
  std::vector<std::string_view> known = {"model", "tokens", "logits"};
  known.insert(known.end(), std::begin(kCacheSections), std::end(kCacheSections));
  return known;
}

// Writes are gathered, since small pages would otherwise be a system call each.
class GatheredWrites {
 public:
  explicit GatheredWrites(AtomicFile& file) : file_(file) { held_.reserve(kMostHeld); }

  void write(std::span<const std::byte> bytes) {
    n_bytes_ += bytes.size();
    if (held_.size() + bytes.size() > kMostHeld) flush();
    if (bytes.size() >= kMostHeld) {
      file_.write(bytes);
    } else {
      held_.insert(held_.end(), bytes.begin(), bytes.end());
    }
  }
  void flush() {
    file_.write(held_);
    held_.clear();
  }
  uint64_t n_bytes() const { return n_bytes_; }

 private:
  static constexpr size_t kMostHeld = size_t{1} << 20;

  AtomicFile& file_;
  std::vector<std::byte> held_;
  uint64_t n_bytes_ = 0;
};

}  // namespace

SavedSession SavedSession::open(const std::string& path) { return {MappedFile::open(path), path}; }

SavedSession SavedSession::from_memory(std::span<const std::byte> bytes, const std::string& name) {
  return {MappedFile::view(bytes), name};
}

SavedSession::SavedSession(MappedFile file, const std::string& name)
    : file_(std::move(file)), sections_(file_.bytes(), name, kKind, [this](std::span<const std::byte> piece) {
        file_.drop_pages(piece);
      }) {
  sections_.check_known(known_sections());
  fingerprint_ = sections_.get_text("model");
  cache_ = SavedCache::read(sections_);
  read_tokens();
}

void SavedSession::read_tokens() {
  tokens_ = sections_.get_values<int32_t>("tokens");
  if (tokens_.size() < cache_.n_tokens)
    sections_.fail_section("tokens", "there are fewer than the cache has rows of");
  if (sections_.find("logits")) logits_ = sections_.get_values<float>("logits");
}

// Of a file with the right checksum these are wrong only where somebody made it so.
void SavedSession::check_values(size_t vocabulary) const {
  for (const int32_t id : tokens_) {
    if (id < 0 || static_cast<size_t>(id) >= vocabulary) {
      sections_.fail_section("tokens", "token id " + std::to_string(id) + " is outside the vocabulary");
    }
  }
  const bool fits = logits_.empty() || (logits_.size() == vocabulary && cache_.n_tokens > 0);
  if (!fits) sections_.fail_section("logits", "its length is wrong");
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::all_of(logits_.begin(), logits_.end(), finite))
    sections_.fail_section("logits", "one is no number");
}

void SavedSession::check_model(const Engine& engine) const {
  if (fingerprint_ != engine.fingerprint()) fail("the saved cache belongs to another model");
}

void SavedSession::check(const Session& session) const {
  const Engine& engine = session.engine();
  check_model(engine);
  if (const std::string mismatch = cache_.mismatch(session.cache()); !mismatch.empty()) fail(mismatch);
  check_values(engine.config().vocabulary);
  if (tokens_.size() > session.context_tokens()) {
    fail("the saved cache has " + std::to_string(tokens_.size()) + " tokens, but the context holds only " +
         std::to_string(session.context_tokens()));
  }
  const PagePool& pool = session.cache().store().pool();
  const Cache& cache = session.cache();
  const uint64_t needed =
      pool.account().firm_bytes() + (cache.store().tier() == nullptr
                                         ? cache_.pages.size()
                                         : cache.geometry().cache_bytes(cache.recipe(), tokens_.size()));
  if (pool.budget_bytes() != 0 && needed > pool.budget_bytes()) {
    fail("the saved cache of " + std::to_string(tokens_.size()) + " tokens takes " + std::to_string(needed) +
         " bytes, but the budget is " + std::to_string(pool.budget_bytes()));
  }
}

void SavedSession::restore(Cache& cache) const {
  cache_.restore(cache, [this](std::span<const std::byte> piece) { file_.drop_pages(piece); });
}

namespace {

SequenceParts parts_of(const Session& session) {
  return {session.engine(), session.cache(), session.tokens(), session.logits()};
}

void write_sequence(const SequenceParts& parts, const ByteSink& sink) {
  std::vector<Section> sections;
  sections.push_back(value_section<char>("model", parts.engine.fingerprint()));
  for (Section& section : cache_sections(parts.cache)) sections.push_back(std::move(section));
  sections.push_back(value_section<int32_t>("tokens", parts.tokens));
  if (!parts.logits.empty()) {
    sections.push_back(value_section<float>("logits", parts.logits, /*mandatory=*/false));
  }
  write_sections(kKind, sections, sink);
}

}  // namespace

void write_session(const Session& session, const ByteSink& sink) { write_sequence(parts_of(session), sink); }

uint64_t save_session(const Session& session, const std::string& path) {
  return save_sequence(parts_of(session), path);
}

uint64_t save_sequence(const SequenceParts& parts, const std::string& path) {
  AtomicFile file(path);
  GatheredWrites writes(file);
  write_sequence(parts, [&](std::span<const std::byte> bytes) { writes.write(bytes); });
  writes.flush();
  file.commit();
  return writes.n_bytes();
}

}  // namespace quire
