// A slab device whose transfers go wrong as a test wants it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tier/slab_device.h"

namespace quire {

// Shared with the test, which may change it while the device is in use.
struct Faults {
  std::atomic<int> short_every{0};           // every so many transfers move only half of what they were asked
  std::atomic<int> put_off_every{0};         // or nothing, with EAGAIN
  std::atomic<bool> holds{false};            // nothing is done until this is false again
  std::atomic<int> n_started{0};             // transfers, by the device
  std::atomic<int> delay_us{0};              // up to so much passes before a transfer is done; order changes
  std::atomic<int> read_error{0};            // an errno that all reads end with
  std::atomic<int> write_error{0};           // the same of writes
  std::atomic<uint64_t> end{~uint64_t{0}};   // nothing is read from here on
  std::atomic<bool> flips_all{false};        // a bit in every 512 bytes
  std::atomic<uint64_t> flip{~uint64_t{0}};  // a bit of the byte at this offset is read wrongly
};

class FaultyDevice : public SlabDevice {
 public:
  FaultyDevice(std::unique_ptr<SlabDevice> device, std::shared_ptr<Faults> faults)
      : device_(std::move(device)), faults_(std::move(faults)) {}
  ~FaultyDevice() override {
    FinishedTransfer finished[8];
    while (n_under_way_ > 0) finish(finished);
  }

  const char* name() const override { return device_->name(); }
  size_t alignment() const override { return device_->alignment(); }
  size_t depth() const override { return device_->depth(); }

  void start(std::span<const Transfer> transfers) override {
    for (Transfer transfer : transfers) {
      ++n_under_way_;
      ++n_started_;
      ++faults_->n_started;
      const int error = transfer.writes ? faults_->write_error : faults_->read_error;
      if (error != 0) {
        done_.push_back({transfer.tag, -error});
        continue;
      }
      if (faults_->put_off_every > 0 && n_started_ % faults_->put_off_every == 0) {
        done_.push_back({transfer.tag, -EAGAIN});
        continue;
      }
      if (faults_->short_every > 0 && n_started_ % faults_->short_every == 0)
        transfer.n_bytes = half(transfer.n_bytes);
      if (!transfer.writes && transfer.offset + transfer.n_bytes > faults_->end) {
        if (transfer.offset >= faults_->end) {
          done_.push_back({transfer.tag, 0});
          continue;
        }
        transfer.n_bytes = std::max(device_->alignment(), (faults_->end - transfer.offset) /
                                                              device_->alignment() * device_->alignment());
      }
      reads_.push_back(transfer);
      device_->start({&transfer, 1});
    }
  }

  size_t finish(std::span<FinishedTransfer> finished) override {
    if (n_under_way_ == 0) return 0;
    while (faults_->holds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    FinishedTransfer some[8];
    if (done_.empty()) {
      const size_t n = device_->finish(some);
      for (size_t i = 0; i < n; ++i) {
        flip_bit(some[i]);
        done_.push_back(some[i]);
      }
    }
    if (faults_->delay_us > 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(random_() % static_cast<unsigned>(faults_->delay_us.load())));
      std::shuffle(done_.begin(), done_.end(), random_);
    }
    const size_t n = std::min(finished.size(), done_.size());
    std::copy_n(done_.begin(), n, finished.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    n_under_way_ -= n;
    return n;
  }

 private:
  size_t half(size_t n_bytes) const {
    const size_t unit = device_->alignment();
    return std::max(unit, n_bytes / 2 / unit * unit);
  }

  void flip_bit(const FinishedTransfer& finished) {
    const auto at =
        std::find_if(reads_.begin(), reads_.end(), [&](const Transfer& t) { return t.tag == finished.tag; });
    const uint64_t flip = faults_->flip;
    if (!at->writes && flip >= at->offset && flip < at->offset + at->n_bytes)
      at->data[flip - at->offset] ^= std::byte{4};
    for (size_t i = 256; !at->writes && faults_->flips_all && i < at->n_bytes; i += 512)
      at->data[i] ^= std::byte{4};
    reads_.erase(at);
  }

  std::unique_ptr<SlabDevice> device_;
  std::shared_ptr<Faults> faults_;
  std::vector<Transfer> reads_;  // and writes, that are under way
  std::vector<FinishedTransfer> done_;
  size_t n_under_way_ = 0;
  int n_started_ = 0;
  std::minstd_rand random_{7};
};

}  // namespace quire
