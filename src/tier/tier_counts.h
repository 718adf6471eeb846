// What a tier has done.
#pragma once

#include <cstdint>

namespace quire {

struct TierCounts {
  uint64_t pieces = 0;  // that readers asked for; each was there (a hit), on its way, or fetched then
  uint64_t hits = 0;
  uint64_t late = 0;            // on their way
  uint64_t fetched_pieces = 0;  // ahead or when asked for
  uint64_t fetched_bytes = 0;   // read from the slab, gaps between pieces and checksums among them
  uint64_t written_bytes = 0;
  uint64_t waited_ns = 0;  // of readers, summed over threads
  uint64_t wanted = 0;     // entries of what was told ahead of its use, and taken

  double hit_rate() const {
    return pieces == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(pieces);
  }
  TierCounts since(const TierCounts& earlier) const {
    return {pieces - earlier.pieces,
            hits - earlier.hits,
            late - earlier.late,
            fetched_pieces - earlier.fetched_pieces,
            fetched_bytes - earlier.fetched_bytes,
            written_bytes - earlier.written_bytes,
            waited_ns - earlier.waited_ns,
            wanted - earlier.wanted};
  }
  void add(const TierCounts& other) {
    pieces += other.pieces;
    hits += other.hits;
    late += other.late;
    fetched_pieces += other.fetched_pieces;
    fetched_bytes += other.fetched_bytes;
    written_bytes += other.written_bytes;
    waited_ns += other.waited_ns;
    wanted += other.wanted;
  }
};

}  // namespace quire
