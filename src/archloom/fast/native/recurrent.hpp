// A recurrent cell over a whole segment, forward and backward through time. recurrent_segment.py is its reference.
//
// Rows of states have whole vectors. Rows of products have a vector of gates and one of candidates in turn: both are at
// hand when a state is computed. What lies beyond the hidden size is never read by a product, and its gradient is zero.
// The backward pass writes gradients of products over the products.

#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "matrices.hpp"

namespace {

enum Activation : Index { TANH, RELU, SIGMOID, IDENTITY, MIXTURE };

// As Python passes it: pointers and 64-bit numbers.
struct Segment {
    Index steps, columns, hidden, nodes, outputs, normalized, mixed;
    const Index* first_edges;   // [nodes + 1]
    const Index* sources;       // [edges], the state that each reads
    const Index* activations;   // [edges], of a path
    const Index* output_states; // [outputs]
    const float* given;         // [steps, columns, 2 hidden]
    const float* start;         // [columns, hidden]
    const float* matrix;        // [hidden, 2 hidden], of the last output
    const float* matrices;      // [nodes, hidden, 2 hidden]
    const float* mask;          // [columns, hidden], or nothing
    const float* shares;        // [edges, 4] of a mixture, [edges] of a path, or nothing
    float* states;              // [steps, nodes + 1, columns, padded]: what the backward pass needs, from here on
    float* seen;                // the same where matrices read them
    float* before;              // [2, steps, columns, padded]: the last output, and where the matrix reads it
    float* products;            // [steps, 1 + edges, columns, 2 padded]
    float* deviations;          // [steps, nodes + 1, padded]: 1 / standard deviation
};

constexpr float NORM_EPSILON = 1e-5f;

// tanh as a quotient of polynomials, to a few units in the last place (as Eigen has it); not a number stays so.
ALWAYS Vector tanh_of(Vector x) {
    const Vector most = splat(7.90531110763549805f);
    x = x > most ? most : x;
    x = x < -most ? -most : x;
    const Vector y = x * x;
    Vector p = y * -2.76076847742355e-16f + 2.00018790482477e-13f;
    p = p * y + -8.60467152213735e-11f;
    p = p * y + 5.12229709037114e-08f;
    p = p * y + 1.48572235717979e-05f;
    p = p * y + 6.37261928875436e-04f;
    p = p * y + 4.89352455891786e-03f;
    Vector q = y * 1.19825839466702e-06f + 1.18534705686654e-04f;
    q = q * y + 2.26843463243900e-03f;
    q = q * y + 4.89352518554385e-03f;
    return x * p / q;
}

ALWAYS Vector sigmoid_of(Vector x) { return tanh_of(x * 0.5f) * 0.5f + 0.5f; }
ALWAYS Vector relu_of(Vector x) { return x < Vector{} ? Vector{} : x; }

// What an edge makes of a candidate, and its slope: one activation, or a mixture of all.
struct Activated {
    Vector value, slope;
    Vector parts[4];  // of a mixture
};

template <Index KIND>
ALWAYS Activated activate(Vector u, const float* shares) {
    const Vector one = splat(1.0f), none = {};
    Activated made;
    if constexpr (KIND == MIXTURE) {
        const Vector t = tanh_of(u), s = sigmoid_of(u), r = relu_of(u);
        made.value = t * shares[0] + r * shares[1] + s * shares[2] + u * shares[3];
        const Vector open = u > none ? splat(shares[1]) : none;
        made.slope = (one - t * t) * shares[0] + open + s * (one - s) * shares[2] + shares[3];
        made.parts[0] = t, made.parts[1] = r, made.parts[2] = s, made.parts[3] = u;
        return made;
    }
    Vector value = u, slope = one;
    if constexpr (KIND == TANH) value = tanh_of(u), slope = one - value * value;
    if constexpr (KIND == RELU) value = relu_of(u), slope = u > none ? one : none;
    if constexpr (KIND == SIGMOID) value = sigmoid_of(u), slope = value * (one - value);
    made.parts[0] = value;
    made.value = value * shares[0], made.slope = slope * shares[0];
    return made;
}

class Cell {
  public:
    Cell(const Segment& given, Index threads)
        : s(given), threads_(threads), vectors(round_up(s.hidden, LANES) / LANES), padded(vectors * LANES),
          edges(s.first_edges[s.nodes]), plane(s.columns * padded), mask_(s.mask ? plane : 0) {
        if (s.mask)
            for (Index b = 0; b < s.columns; ++b) widen(s.mask + b * s.hidden, mask_.at(b * padded));
    }

    // --- places

    float* state(Index t, Index number) const { return s.states + (t * (s.nodes + 1) + number) * plane; }
    float* seen(Index t, Index number) const { return s.seen + (t * (s.nodes + 1) + number) * plane; }
    float* before(Index t) const { return s.before + t * plane; }
    float* before_seen(Index t) const { return s.before + (s.steps + t) * plane; }
    float* product(Index t, Index place) const { return s.products + (t * (1 + edges) + place) * 2 * plane; }
    float* deviation(Index t, Index number) const { return s.deviations + (t * (s.nodes + 1) + number) * padded; }
    const float* mask() const { return s.mask ? mask_.at(0) : nullptr; }

    // Number of a column of [hidden, 2 hidden] at a place of a row of products; -1 beyond the hidden size.
    Index column_at(Index place) const {
        const Index vector = place / LANES, number = vector / 2 * LANES + place % LANES;
        return number < s.hidden ? vector % 2 * s.hidden + number : -1;
    }

    void widen(const float* from, float* to) const {
        std::memcpy(to, from, std::size_t(s.hidden) * sizeof(float));
        for (Index place = s.hidden; place < padded; ++place) to[place] = 0;
    }

    void interleave(const float* from, float* to) const {
        for (Index place = 0; place < 2 * padded; ++place) {
            const Index column = column_at(place);
            to[place] = column < 0 ? 0 : from[column];
        }
    }

    void separate(const float* from, float* to) const {
        for (Index half = 0; half < 2; ++half)
            for (Index number = 0; number < s.hidden; ++number) {
                to[half * s.hidden + number] = from[(number / LANES * 2 + half) * LANES + number % LANES];
            }
    }

    const float* shares_of(Index edge) const {
        static const float whole = 1;
        return s.shares ? s.shares + edge * (s.mixed ? 4 : 1) : &whole;
    }

    float kept(Index edge) const {
        const float* own = shares_of(edge);
        return s.mixed ? own[0] + own[1] + own[2] + own[3] : own[0];
    }

    int threads_for(Index tasks, Index work) const {
        return work < WORTH_SHARING ? 1 : thread_count(threads_, tasks, work);
    }

    // --- a state, once it is computed

    // Normalise the rows of a state in place, and write it where matrices read it.
    void place(float* rows, float* dropped, float* deviations) const {
        for (Index v = 0; v < vectors; ++v) {
            float* at = rows + v * LANES;
            Vector mean = {}, scale = splat(1);
            if (s.normalized) {
                for (Index b = 0; b < s.columns; ++b) mean += load(at + b * padded);
                mean /= float(s.columns);
                Vector squares = {};
                for (Index b = 0; b < s.columns; ++b) {
                    const Vector off = load(at + b * padded) - mean;
                    squares += off * off;
                }
                squares = squares / float(s.columns) + NORM_EPSILON;
                for (Index lane = 0; lane < LANES; ++lane) scale[lane] = 1 / std::sqrt(squares[lane]);
                store(deviations + v * LANES, scale);
                for (Index b = 0; b < s.columns; ++b) store(at + b * padded, (load(at + b * padded) - mean) * scale);
            }
            for (Index b = 0; b < s.columns; ++b) {
                const Vector value = load(at + b * padded);
                store(dropped + b * padded + v * LANES, s.mask ? value * load(mask() + b * padded + v * LANES) : value);
            }
        }
    }

    // Turn the gradient of a normalised state into that of what was normalised.
    void denormalize(float* gradient, const float* rows, const float* deviations) const {
        if (!s.normalized) return;
        for (Index v = 0; v < vectors; ++v) {
            float* at = gradient + v * LANES;
            const float* value = rows + v * LANES;
            Vector sum = {}, product = {};
            for (Index b = 0; b < s.columns; ++b) {
                const Vector one = load(at + b * padded);
                sum += one;
                product += one * load(value + b * padded);
            }
            sum /= float(s.columns), product /= float(s.columns);
            const Vector scale = load(deviations + v * LANES);
            for (Index b = 0; b < s.columns; ++b)
                store(at + b * padded, (load(at + b * padded) - sum - load(value + b * padded) * product) * scale);
        }
    }

    const Segment& s;

  private:
    Index threads_;

  public:
    const Index vectors, padded, edges, plane;

  private:
    Buffer<float> mask_;
};

// out rows (+)= left rows * panels, for planes of columns that are given by their number.
template <class Left, class Out>
void multiply(const Cell& cell, Index planes, Left left, const Panels& right, Out out, Index out_row, bool add) {
    const Index columns = cell.s.columns, depth = right.depth(), tasks = right.count() * planes;
    const Index row_step = cell.padded;
    const int threads = cell.threads_for(tasks, planes * columns * depth * right.vectors() * LANES);
    share(tasks, threads, [&](Index first, Index last, int) {
        for (Index task = first; task < last; ++task) {
            const Index panel = task / planes, number = task % planes;
            const float* from = left(number);
            float* to = out(number) + panel * PANEL * LANES;
            const float* factors = right.at(panel);
            const Index width = right.width(panel);
            each_tile(columns, width, [&](Index row, auto rows, auto vectors) {
                constexpr int R = decltype(rows)::value, V = decltype(vectors)::value;
                Vector sums[R][V] = {};
                add_tile<R, V>(from + row * row_step, row_step, 1, factors, V * LANES, depth, sums);
                for (int r = 0; r < R; ++r)
                    for (int v = 0; v < V; ++v) {
                        float* place = to + (row + r) * out_row + v * LANES;
                        store(place, add ? load(place) + sums[r][v] : sums[r][v]);
                    }
            });
        }
    });
}

// --- forward

class Forward {
  public:
    Forward(const Segment& segment, Index threads) : cell_(segment, threads) {
        pack(segment.matrix);
        for (Index node = 0; node < segment.nodes; ++node)
            pack(segment.matrices + node * segment.hidden * 2 * segment.hidden);
    }

    void run(float* out) {
        const Segment& s = cell_.s;
        for (Index b = 0; b < s.columns; ++b)
            cell_.widen(s.start + b * s.hidden, cell_.before(0) + b * cell_.padded);
        Buffer<float> last(cell_.plane);
        for (Index t = 0; t < s.steps; ++t) {
            begin(t);
            for (Index node = 0; node < s.nodes; ++node) run_node(t, node);
            finish(t, t + 1 < s.steps ? cell_.before(t + 1) : last.at(0), out + t * s.columns * s.hidden);
        }
    }

  private:
    void pack(const float* matrix) {
        const Index wide = 2 * cell_.s.hidden;
        packed_.push_back(std::make_unique<Panels>(cell_.s.hidden, 2 * cell_.vectors));
        packed_.back()->fill([&](Index row, Index place) {
            const Index column = cell_.column_at(place);
            return column < 0 ? 0.0f : matrix[row * wide + column];
        });
    }

    // State 0, of the input and the last output.
    void begin(Index t) {
        const Segment& s = cell_.s;
        const Index floats = cell_.plane;
        const float* mask = cell_.mask();
        const float* before = cell_.before(t);
        float* dropped = cell_.before_seen(t);
        for (Index place = 0; place < floats; place += LANES)
            store(dropped + place, mask ? load(before + place) * load(mask + place) : load(before + place));
        float* product = cell_.product(t, 0);
        for (Index b = 0; b < s.columns; ++b)
            cell_.interleave(s.given + (t * s.columns + b) * 2 * s.hidden, product + b * 2 * cell_.padded);
        multiply(
            cell_, 1, [&](Index) { return dropped; }, *packed_[0], [&](Index) { return product; }, 2 * cell_.padded, true
        );
        float* state = cell_.state(t, 0);
        for (Index place = 0; place < floats; place += LANES) {
            const Vector gate = sigmoid_of(load(product + 2 * place)), value = tanh_of(load(product + 2 * place + LANES));
            const Vector old = load(before + place);
            store(product + 2 * place, gate);
            store(product + 2 * place + LANES, value);
            store(state + place, old + gate * (value - old));
        }
        cell_.place(state, cell_.seen(t, 0), cell_.deviation(t, 0));
    }

    void run_node(Index t, Index node) {
        const Segment& s = cell_.s;
        const Index first = s.first_edges[node], count = s.first_edges[node + 1] - first;
        float* state = cell_.state(t, node + 1);
        std::memset(state, 0, std::size_t(cell_.plane) * sizeof(float));
        if (count == 0) {
            std::memset(cell_.seen(t, node + 1), 0, std::size_t(cell_.plane) * sizeof(float));
            return;
        }
        multiply(
            cell_, count, [&](Index edge) { return cell_.seen(t, s.sources[first + edge]); }, *packed_[1 + node],
            [&](Index edge) { return cell_.product(t, 1 + first + edge); }, 2 * cell_.padded, false
        );
        share(s.columns, cell_.threads_for(s.columns, 8 * count * cell_.plane), [&](Index from, Index to, int) {
            for (Index edge = first; edge < first + count; ++edge) add_edge(t, edge, state, from, to);
        });
        cell_.place(state, cell_.seen(t, node + 1), cell_.deviation(t, node + 1));
    }

    void add_edge(Index t, Index edge, float* state, Index from, Index to) {
        switch (cell_.s.mixed ? Index(MIXTURE) : cell_.s.activations[edge]) {
            case TANH: return add_edge_of<TANH>(t, edge, state, from, to);
            case RELU: return add_edge_of<RELU>(t, edge, state, from, to);
            case SIGMOID: return add_edge_of<SIGMOID>(t, edge, state, from, to);
            case IDENTITY: return add_edge_of<IDENTITY>(t, edge, state, from, to);
            default: return add_edge_of<MIXTURE>(t, edge, state, from, to);
        }
    }

    template <Index KIND>
    void add_edge_of(Index t, Index edge, float* state, Index from, Index to) {
        const float* read = cell_.state(t, cell_.s.sources[edge]);
        const float* shares = cell_.shares_of(edge);
        const float kept = cell_.kept(edge);
        float* product = cell_.product(t, 1 + edge);
        for (Index place = from * cell_.padded; place < to * cell_.padded; place += LANES) {
            const Vector gate = sigmoid_of(load(product + 2 * place));
            const Vector made = activate<KIND>(load(product + 2 * place + LANES), shares).value;
            const Vector old = load(read + place) * kept;
            store(product + 2 * place, gate);
            store(state + place, load(state + place) + old + gate * (made - old));
        }
    }

    void finish(Index t, float* next, float* out) {
        const Segment& s = cell_.s;
        const float share = 1.0f / float(s.outputs);
        for (Index place = 0; place < cell_.plane; place += LANES) {
            Vector sum = {};
            for (Index number = 0; number < s.outputs; ++number)
                sum += load(cell_.state(t, s.output_states[number]) + place);
            store(next + place, sum * share);
        }
        for (Index b = 0; b < s.columns; ++b)
            std::memcpy(out + b * s.hidden, next + b * cell_.padded, std::size_t(s.hidden) * sizeof(float));
    }

    Cell cell_;
    std::vector<std::unique_ptr<Panels>> packed_;
};

// --- backward

// Where gradients go; nothing where they are not wanted.
struct Gradients {
    const float* output;  // [steps, columns, hidden], given
    float* given;         // [steps, columns, 2 hidden]
    float* start;         // [columns, hidden]
    float* shares;        // as the shares
};

class Backpropagation {
  public:
    Backpropagation(const Segment& segment, const Gradients& gradients, Index threads)
        : cell_(segment, threads), to_(gradients), states_((segment.nodes + 1) * cell_.plane), into_(cell_.plane),
          moved_(cell_.edges * segment.columns * 4), sources_(std::size_t(1 + cell_.edges)) {
        pack(segment.matrix);
        for (Index node = 0; node < segment.nodes; ++node)
            pack(segment.matrices + node * segment.hidden * 2 * segment.hidden);
    }

    void run() {
        const Segment& s = cell_.s;
        into_.clear();
        moved_.clear();
        for (Index t = s.steps - 1; t >= 0; --t) {
            spread_output(t);
            for (Index node = s.nodes - 1; node >= 0; --node) run_node(t, node);
            end(t);
        }
        for (Index b = 0; b < s.columns; ++b)
            std::memcpy(to_.start + b * s.hidden, into_.at(b * cell_.padded), std::size_t(s.hidden) * sizeof(float));
        if (to_.shares) sum_shares();
    }

  private:
    void pack(const float* matrix) {
        const Index wide = 2 * cell_.s.hidden;
        packed_.push_back(std::make_unique<Panels>(2 * cell_.padded, cell_.vectors));
        packed_.back()->fill([&](Index place, Index row) {
            const Index column = cell_.column_at(place);
            return column < 0 || row >= cell_.s.hidden ? 0.0f : matrix[row * wide + column];
        });
    }

    void spread_output(Index t) {
        const Segment& s = cell_.s;
        states_.clear();
        const float share = 1.0f / float(s.outputs);
        for (Index b = 0; b < s.columns; ++b) {
            const float* own = to_.output + (t * s.columns + b) * s.hidden;
            float* into = into_.at(b * cell_.padded);
            for (Index number = 0; number < s.hidden; ++number) into[number] = (into[number] + own[number]) * share;
        }
        for (Index number = 0; number < s.outputs; ++number)
            std::memcpy(
                states_.at(s.output_states[number] * cell_.plane), into_.at(0), std::size_t(cell_.plane) * sizeof(float)
            );
    }

    void run_node(Index t, Index node) {
        const Segment& s = cell_.s;
        const Index first = s.first_edges[node], count = s.first_edges[node + 1] - first;
        if (count == 0) return;
        float* total = states_.at((node + 1) * cell_.plane);
        cell_.denormalize(total, cell_.state(t, node + 1), cell_.deviation(t, node + 1));
        share(s.columns, cell_.threads_for(s.columns, 8 * count * cell_.plane), [&](Index from, Index to, int) {
            for (Index edge = first; edge < first + count; ++edge) pass_edge(t, edge, total, from, to);
        });
        for (Index edge = first; edge < first + count; ++edge)  // edges of a node read different states
            sources_[edge - first] = states_.at(s.sources[edge] * cell_.plane);
        multiply_back(count, [&](Index edge) { return cell_.product(t, 1 + first + edge); }, *packed_[1 + node]);
    }

    // targets (+)= mask * (gradients of products * transposed matrix)
    template <class Left>
    void multiply_back(Index planes, Left left, const Panels& right) {
        const Index columns = cell_.s.columns, depth = right.depth(), tasks = right.count() * planes;
        const Index row_step = 2 * cell_.padded, padded = cell_.padded;
        const float* mask = cell_.mask();
        const int threads = cell_.threads_for(tasks, planes * columns * depth * right.vectors() * LANES);
        share(tasks, threads, [&](Index first, Index last, int) {
            for (Index task = first; task < last; ++task) {
                const Index panel = task / planes, number = task % planes;
                const float* from = left(number);
                float* to = sources_[number];
                const float* factors = right.at(panel);
                each_tile(columns, right.width(panel), [&](Index row, auto rows, auto vectors) {
                    constexpr int R = decltype(rows)::value, V = decltype(vectors)::value;
                    Vector sums[R][V] = {};
                    add_tile<R, V>(from + row * row_step, row_step, 1, factors, V * LANES, depth, sums);
                    for (int r = 0; r < R; ++r)
                        for (int v = 0; v < V; ++v) {
                            const Index place = (row + r) * padded + (panel * PANEL + v) * LANES;
                            const Vector value = mask ? sums[r][v] * load(mask + place) : sums[r][v];
                            store(to + place, load(to + place) + value);
                        }
                });
            }
        });
    }

    void pass_edge(Index t, Index edge, const float* total, Index from, Index to) {
        switch (cell_.s.mixed ? Index(MIXTURE) : cell_.s.activations[edge]) {
            case TANH: return pass_edge_of<TANH>(t, edge, total, from, to);
            case RELU: return pass_edge_of<RELU>(t, edge, total, from, to);
            case SIGMOID: return pass_edge_of<SIGMOID>(t, edge, total, from, to);
            case IDENTITY: return pass_edge_of<IDENTITY>(t, edge, total, from, to);
            default: return pass_edge_of<MIXTURE>(t, edge, total, from, to);
        }
    }

    template <Index KIND>
    void pass_edge_of(Index t, Index edge, const float* total, Index from, Index to) {
        constexpr int PARTS = KIND == MIXTURE ? 4 : 1;
        const Index source = cell_.s.sources[edge];
        const float* read = cell_.state(t, source);
        const float* shares = cell_.shares_of(edge);
        const float kept = cell_.kept(edge);
        float* product = cell_.product(t, 1 + edge);
        float* around = states_.at(source * cell_.plane);
        for (Index b = from; b < to; ++b) {
            Vector sums[PARTS] = {};
            for (Index v = 0; v < cell_.vectors; ++v) {
                const Index place = b * cell_.padded + v * LANES;
                const Vector gate = load(product + 2 * place), own = load(total + place), old = load(read + place);
                const Activated made = activate<KIND>(load(product + 2 * place + LANES), shares);
                const Vector through = gate * own, rest = own - through;
                for (int part = 0; part < PARTS; ++part) sums[part] += through * made.parts[part] + rest * old;
                store(product + 2 * place, (made.value - old * kept) * (through - through * gate));
                store(product + 2 * place + LANES, through * made.slope);
                store(around + place, load(around + place) + rest * kept);
            }
            if (!to_.shares) continue;
            for (int part = 0; part < PARTS; ++part) {
                float sum = 0;
                for (Index lane = 0; lane < LANES; ++lane) sum += sums[part][lane];
                moved_[(edge * cell_.s.columns + b) * 4 + part] += sum;
            }
        }
    }

    // State 0: gradients of the input's product and of the last output.
    void end(Index t) {
        const Segment& s = cell_.s;
        float* total = states_.at(0);
        cell_.denormalize(total, cell_.state(t, 0), cell_.deviation(t, 0));
        float* product = cell_.product(t, 0);
        const float* before = cell_.before(t);
        for (Index place = 0; place < cell_.plane; place += LANES) {
            const Vector gate = load(product + 2 * place), value = load(product + 2 * place + LANES);
            const Vector own = load(total + place), through = gate * own;
            store(product + 2 * place, (value - load(before + place)) * (through - through * gate));
            store(product + 2 * place + LANES, through * (splat(1) - value * value));
            store(into_.at(place), own - through);
        }
        if (to_.given)
            for (Index b = 0; b < s.columns; ++b)
                cell_.separate(product + b * 2 * cell_.padded, to_.given + (t * s.columns + b) * 2 * s.hidden);
        sources_[0] = into_.at(0);
        multiply_back(1, [&](Index) { return product; }, *packed_[0]);
    }

    void sum_shares() {
        const Index parts = cell_.s.mixed ? 4 : 1;
        for (Index edge = 0; edge < cell_.edges; ++edge)
            for (Index part = 0; part < parts; ++part) {
                double sum = 0;
                for (Index b = 0; b < cell_.s.columns; ++b) sum += moved_[(edge * cell_.s.columns + b) * 4 + part];
                to_.shares[edge * parts + part] = float(sum);
            }
    }

    Cell cell_;
    Gradients to_;
    Buffer<float> states_, into_, moved_;
    std::vector<std::unique_ptr<Panels>> packed_;
    std::vector<float*> sources_;
};

// --- gradients of matrices, from what the backward pass left in place of the products

class WeightGradients {
  public:
    WeightGradients(const Segment& segment, Index threads)
        : cell_(segment, threads), sums_(segment.hidden * 2 * cell_.padded) {}

    void run(float* matrix, float* matrices) {
        const Segment& s = cell_.s;
        std::vector<Pair> pairs;
        for (Index t = 0; t < s.steps; ++t) pairs.push_back({cell_.before_seen(t), cell_.product(t, 0)});
        add_up(pairs, matrix);
        for (Index node = 0; node < s.nodes; ++node) {
            pairs.clear();
            for (Index t = 0; t < s.steps; ++t)
                for (Index edge = s.first_edges[node]; edge < s.first_edges[node + 1]; ++edge)
                    pairs.push_back({cell_.seen(t, s.sources[edge]), cell_.product(t, 1 + edge)});
            add_up(pairs, matrices + node * s.hidden * 2 * s.hidden);
        }
    }

  private:
    struct Pair {
        const float* read;
        const float* gradient;
    };
    static constexpr Index ROWS_AT_ONCE = 256;  // of a panel: they fit into the first cache

    // out = sum over pairs of transposed read * gradient
    void add_up(const std::vector<Pair>& pairs, float* out) {
        const Segment& s = cell_.s;
        sums_.clear();
        const Index each = ROWS_AT_ONCE / s.columns > 1 ? ROWS_AT_ONCE / s.columns : 1, all = Index(pairs.size());
        const Index panels = panel_count(2 * cell_.vectors), wide = 2 * cell_.padded;
        const int threads = cell_.threads_for(panels, each * s.columns * s.hidden * wide);
        Buffer<float> copies(threads * each * s.columns * PANEL * LANES);
        for (Index start = 0; start < all; start += each) {
            const Index count = all - start < each ? all - start : each;
            share(panels, threads, [&](Index first, Index last, int number) {
                float* copy = copies.at(number * each * s.columns * PANEL * LANES);
                for (Index panel = first; panel < last; ++panel) add_panel(&pairs[std::size_t(start)], count, panel, copy);
            });
        }
        for (Index row = 0; row < s.hidden; ++row)
            cell_.separate(sums_.at(row * wide), out + row * 2 * s.hidden);
    }

    void add_panel(const Pair* pairs, Index count, Index panel, float* copy) {
        const Segment& s = cell_.s;
        const Index wide = 2 * cell_.padded, width = panel_width(2 * cell_.vectors, panel) * LANES;
        for (Index number = 0; number < count; ++number)
            for (Index b = 0; b < s.columns; ++b)
                for (Index place = 0; place < width; place += LANES)
                    store(
                        copy + (number * s.columns + b) * width + place,
                        load(pairs[number].gradient + b * wide + panel * PANEL * LANES + place)
                    );
        each_tile(s.hidden, width / LANES, [&](Index row, auto rows, auto vectors) {
            constexpr int R = decltype(rows)::value, V = decltype(vectors)::value;
            float* to = sums_.at(row * wide + panel * PANEL * LANES);
            Vector sums[R][V];
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) sums[r][v] = load(to + r * wide + v * LANES);
            for (Index number = 0; number < count; ++number)
                add_tile<R, V>(
                    pairs[number].read + row, 1, cell_.padded, copy + number * s.columns * V * LANES, V * LANES,
                    s.columns, sums
                );
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) store(to + r * wide + v * LANES, sums[r][v]);
        });
    }

    Cell cell_;
    Buffer<float> sums_;
};

}  // namespace
