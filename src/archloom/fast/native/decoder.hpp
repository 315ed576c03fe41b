// The decoder of a language model with its cross entropy: logits = hidden * transposed weights + bias.
//
// Tokens fill the lanes of vectors: sums over the words need no sums over lanes, and rows of weights are read as they
// lie. Logits of one panel of tokens and one block of words are made, and used, while they are in the second cache.
// Those that the backward pass reads are kept; it turns them into their own gradients, in place.

#pragma once

#include <cmath>
#include <limits>

#include "exponential.hpp"
#include "matrices.hpp"

namespace {

// As Python passes it: pointers and 64-bit numbers.
struct Decoder {
    Index tokens, hidden, words;
    const float* states;   // [tokens, hidden]
    const float* weights;  // [words, hidden]
    const float* bias;     // [words]
    const Index* labels;   // [tokens], each a word
    float* logits;         // [panels of tokens][words][tokens of the panel]: kept for the backward pass, or nothing
    float* logarithms;     // [tokens], of the sums of exponentials
};

constexpr Index BLOCK_WORDS = 256;  // rows of weights, and of their gradients, that stay in the second cache

// Panels of tokens, and blocks of words.
struct DecoderCut {
    const Decoder& d;
    const Index vectors, panels, blocks;  // vectors of tokens

    explicit DecoderCut(const Decoder& given)
        : d(given), vectors(round_up(d.tokens, LANES) / LANES), panels(panel_count(vectors)),
          blocks((d.words + BLOCK_WORDS - 1) / BLOCK_WORDS) {}

    Index first_token(Index panel) const { return panel * PANEL * LANES; }
    Index width(Index panel) const { return panel_width(vectors, panel); }  // vectors
    Index row(Index panel) const { return width(panel) * LANES; }           // floats of a word
    Index tokens(Index panel) const {                                       // without the zeros after the last
        return d.tokens - first_token(panel) < row(panel) ? d.tokens - first_token(panel) : row(panel);
    }
    float* logits(Index panel, Index word) const { return d.logits + first_token(panel) * d.words + word * row(panel); }
    Index first_word(Index block) const { return block * BLOCK_WORDS; }
    Index words(Index block) const {
        return d.words - first_word(block) < BLOCK_WORDS ? d.words - first_word(block) : BLOCK_WORDS;
    }
    int threads_for(Index threads, Index tasks) const {
        const Index work = d.tokens * d.hidden * d.words;
        return work < WORTH_SHARING ? 1 : thread_count(threads, tasks, work);
    }
};

// --- forward

class CrossEntropy {
  public:
    CrossEntropy(const Decoder& decoder, Index threads)
        : cut_(decoder), threads_(cut_.threads_for(threads, cut_.panels)), states_(decoder.hidden, cut_.vectors),
          most_(cut_.vectors * LANES), sums_(cut_.vectors * LANES), chosen_(cut_.vectors * LANES),
          blocks_(decoder.logits ? 0 : threads_ * BLOCK_WORDS * PANEL * LANES) {
        const Decoder& d = cut_.d;
        states_.fill([&](Index k, Index token) { return token < d.tokens ? d.states[token * d.hidden + k] : 0.0f; });
    }

    void run(float* losses) {
        sums_.clear();
        for (Index token = 0; token < cut_.vectors * LANES; ++token) most_[token] = std::numeric_limits<float>::lowest();
        share(cut_.panels, threads_, [&](Index first, Index last, int number) {
            for (Index block = 0; block < cut_.blocks; ++block)
                for (Index panel = first; panel < last; ++panel) run_block(block, panel, number);
        });
        for (Index token = 0; token < cut_.d.tokens; ++token) {
            cut_.d.logarithms[token] = most_[token] + std::log(sums_[token]);
            losses[token] = cut_.d.logarithms[token] - chosen_[token];
        }
    }

  private:
    void run_block(Index block, Index panel, int number) {
        const Index word = cut_.first_word(block), words = cut_.words(block), row = cut_.row(panel);
        float* logits = cut_.d.logits ? cut_.logits(panel, word) : blocks_.at(number * BLOCK_WORDS * PANEL * LANES);
        multiply(panel, word, words, logits);
        for (Index v = 0; v < cut_.width(panel); ++v)
            add_exponentials(logits + v * LANES, row, words, cut_.first_token(panel) + v * LANES);
        for (Index place = 0; place < cut_.tokens(panel); ++place) {
            const Index token = cut_.first_token(panel) + place, label = cut_.d.labels[token] - word;
            if (label >= 0 && label < words) chosen_[token] = logits[label * row + place];
        }
    }

    void multiply(Index panel, Index word, Index words, float* logits) {
        const Index hidden = cut_.d.hidden, row = cut_.row(panel);
        const float *weights = cut_.d.weights + word * hidden, *bias = cut_.d.bias + word, *states = states_.at(panel);
        each_tile(words, cut_.width(panel), [&](Index first, auto rows, auto vectors) {
            constexpr int R = decltype(rows)::value, V = decltype(vectors)::value;
            Vector sums[R][V];
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) sums[r][v] = splat(bias[first + r]);
            add_tile<R, V>(weights + first * hidden, hidden, 1, states, V * LANES, hidden, sums);
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) store(logits + (first + r) * row + v * LANES, sums[r][v]);
        });
    }

    // Sums are relative to the largest logit so far, and follow it.
    void add_exponentials(const float* logits, Index row, Index words, Index token) {
        const Vector before = load(most_.at(token));
        Vector most = before, sum = {};
        for (Index word = 0; word < words; ++word) {
            const Vector value = load(logits + word * row);
            most = value > most ? value : most;
        }
        for (Index word = 0; word < words; ++word) sum += exponential_of(load(logits + word * row) - most);
        store(sums_.at(token), load(sums_.at(token)) * exponential_of(before - most) + sum);
        store(most_.at(token), most);
    }

    DecoderCut cut_;
    int threads_;
    Panels states_;
    Buffer<float> most_, sums_, chosen_, blocks_;
};

// --- backward: the gradient of the states, and in place of the logits theirs

class DecoderGradient {
  public:
    DecoderGradient(const Decoder& decoder, const float* losses, Index threads)
        : cut_(decoder), threads_(cut_.threads_for(threads, cut_.panels)),
          padded_(round_up(decoder.hidden, LANES)), logarithms_(cut_.vectors * LANES), losses_(cut_.vectors * LANES),
          weights_(BLOCK_WORDS * padded_ * threads_), sums_(cut_.vectors * LANES * padded_) {
        logarithms_.clear(), losses_.clear();
        std::memcpy(logarithms_.at(0), decoder.logarithms, std::size_t(decoder.tokens) * sizeof(float));
        std::memcpy(losses_.at(0), losses, std::size_t(decoder.tokens) * sizeof(float));
    }

    void run(float* by_states) {
        const Decoder& d = cut_.d;
        sums_.clear();
        share(cut_.panels, threads_, [&](Index first, Index last, int number) {
            float* weights = weights_.at(number * BLOCK_WORDS * padded_);
            for (Index block = 0; block < cut_.blocks; ++block) {
                pack(block, weights);
                for (Index panel = first; panel < last; ++panel) {
                    differentiate(block, panel);
                    multiply(block, panel, weights);
                }
            }
        });
        for (Index token = 0; token < d.tokens; ++token)
            std::memcpy(by_states + token * d.hidden, sums_.at(token * padded_), std::size_t(d.hidden) * sizeof(float));
    }

  private:
    // Panels of weights, each [words][width].
    void pack(Index block, float* to) const {
        const Index hidden = cut_.d.hidden, words = cut_.words(block);
        for (Index column = 0; column < hidden; column += PANEL * LANES) {
            const Index floats = padded_ - column < PANEL * LANES ? padded_ - column : PANEL * LANES;
            const Index known = hidden - column < floats ? hidden - column : floats;
            const float* from = cut_.d.weights + cut_.first_word(block) * hidden + column;
            for (Index word = 0; word < words; ++word, from += hidden, to += floats) {
                std::memcpy(to, from, std::size_t(known) * sizeof(float));
                for (Index place = known; place < floats; ++place) to[place] = 0;
            }
        }
    }

    // logits become (probability - 1 at the label) * gradient of the loss
    void differentiate(Index block, Index panel) const {
        const Index word = cut_.first_word(block), words = cut_.words(block), row = cut_.row(panel);
        const Index token = cut_.first_token(panel);
        float* logits = cut_.logits(panel, word);
        for (Index v = 0; v < cut_.width(panel); ++v) {
            const Vector logarithm = load(logarithms_.at(token + v * LANES)), loss = load(losses_.at(token + v * LANES));
            for (float* at = logits + v * LANES; at < logits + words * row; at += row)
                store(at, exponential_of(load(at) - logarithm) * loss);
        }
        for (Index place = 0; place < cut_.tokens(panel); ++place) {
            const Index label = cut_.d.labels[token + place] - word;
            if (label >= 0 && label < words) logits[label * row + place] -= losses_[token + place];
        }
    }

    // sums of a panel of tokens += its gradients * a block of weights
    void multiply(Index block, Index panel, const float* weights) const {
        const Index words = cut_.words(block), row = cut_.row(panel), vectors = padded_ / LANES;
        const float* gradients = cut_.logits(panel, cut_.first_word(block));
        float* sums = sums_.at(cut_.first_token(panel) * padded_);
        for (Index part = 0; part < panel_count(vectors); ++part, weights += words * PANEL * LANES)
            each_tile(row, panel_width(vectors, part), [&](Index first, auto rows, auto width) {
                constexpr int R = decltype(rows)::value, V = decltype(width)::value;
                float* to = sums + first * padded_ + part * PANEL * LANES;
                Vector own[R][V];
                for (int r = 0; r < R; ++r)
                    for (int v = 0; v < V; ++v) own[r][v] = load(to + r * padded_ + v * LANES);
                add_tile<R, V>(gradients + first, 1, row, weights, V * LANES, words, own);
                for (int r = 0; r < R; ++r)
                    for (int v = 0; v < V; ++v) store(to + r * padded_ + v * LANES, own[r][v]);
            });
    }

    DecoderCut cut_;
    int threads_;
    Index padded_;
    Buffer<float> logarithms_, losses_, weights_, sums_;
};

// --- gradients of the weights, from what the backward pass left in place of the logits

class DecoderWeights {
  public:
    DecoderWeights(const Decoder& decoder, Index threads)
        : cut_(decoder), threads_(cut_.threads_for(threads, cut_.blocks)), padded_(round_up(decoder.hidden, LANES)),
          states_(cut_.vectors * LANES, padded_ / LANES), sums_(BLOCK_WORDS * padded_ * threads_) {
        const Decoder& d = cut_.d;
        states_.fill([&](Index token, Index k) {
            return token < d.tokens && k < d.hidden ? d.states[token * d.hidden + k] : 0.0f;
        });
    }

    void run(float* by_weights, float* by_bias) const {
        const Index hidden = cut_.d.hidden;
        share(cut_.blocks, threads_, [&](Index first, Index last, int number) {
            float* sums = sums_.at(number * BLOCK_WORDS * padded_);
            for (Index block = first; block < last; ++block) {
                const Index word = cut_.first_word(block), words = cut_.words(block);
                std::memset(sums, 0, std::size_t(words * padded_) * sizeof(float));
                for (Index panel = 0; panel < cut_.panels; ++panel) multiply(panel, word, words, sums);
                for (Index place = 0; place < words; ++place) {
                    float* to = by_weights + (word + place) * hidden;
                    std::memcpy(to, sums + place * padded_, std::size_t(hidden) * sizeof(float));
                    by_bias[word + place] = sum_tokens(word + place);
                }
            }
        });
    }

  private:
    // sums of a block of words += gradients of a panel of tokens * its states
    void multiply(Index panel, Index word, Index words, float* sums) const {
        const Index row = cut_.row(panel);
        const float* gradients = cut_.logits(panel, word);
        for (Index part = 0; part < states_.count(); ++part) {
            const float* states = states_.at(part) + cut_.first_token(panel) * states_.width(part) * LANES;
            each_tile(words, states_.width(part), [&](Index first, auto rows, auto width) {
                constexpr int R = decltype(rows)::value, V = decltype(width)::value;
                float* to = sums + first * padded_ + part * PANEL * LANES;
                Vector own[R][V];
                for (int r = 0; r < R; ++r)
                    for (int v = 0; v < V; ++v) own[r][v] = load(to + r * padded_ + v * LANES);
                add_tile<R, V>(gradients + first * row, row, 1, states, V * LANES, row, own);
                for (int r = 0; r < R; ++r)
                    for (int v = 0; v < V; ++v) store(to + r * padded_ + v * LANES, own[r][v]);
            });
        }
    }

    float sum_tokens(Index word) const {
        Vector sums = {};
        for (Index panel = 0; panel < cut_.panels; ++panel)
            for (Index place = 0; place < cut_.row(panel); place += LANES) sums += load(cut_.logits(panel, word) + place);
        float sum = 0;
        for (Index lane = 0; lane < LANES; ++lane) sum += sums[lane];
        return sum;
    }

    DecoderCut cut_;
    int threads_;
    Index padded_;
    Panels states_;
    Buffer<float> sums_;
};

}  // namespace
