// A whole network of one architecture, forwards and backwards in one call each, by a plan that Python makes once.
//
// fast/network_plan.py writes the tables below and says which map lies where in the workspace. The forward pass leaves
// there what the backward pass reads; that one replaces values that were normalised by their gradients.

#pragma once

#include "dense.hpp"
#include "sums.hpp"

namespace {

enum StepKind : Index { CONVOLVE, HALVE, SUM };
enum TermKind : Index { AS_IT_IS, NORMALIZED, POOLED };

struct Step {
    Index kind, source, target;
    Index kernel, stride, rectified;  // of a convolution
    Index weight, strides[4];         // its place in the table of pointers, and its layout
    Index by_weight;                  // place in the gradient of all parameters
    Index norm;                       // that reads the results and needs their statistics; -1: none
    Index first_term, terms;          // of a sum
    Index live;                       // whether the result of the network depends on it
    Index passes, adds;               // whether the source gets a gradient, and has one already
};

struct SumTerm {
    Index kind, map, norm, passes, adds;
};

struct Plan {
    const Map* maps;
    const Step* steps;
    Index count;
    const SumTerm* terms;
    const Norm* norms;
    const float* numbers;
    Index first, last;  // the map of the images, and the one that is averaged in the end
};

// Largest needs of all steps, in floats.
struct Needs {
    Index weights = 0, kept_weights = 0, kept_sums = 0, spread = 0, row = 0, channels = 0;

    static void raise(Index& most, Index value) { most = most < value ? value : most; }

    Needs(const Plan& plan, Index groups) {
        for (Index number = 0; number < plan.count; ++number) {
            const Step& step = plan.steps[number];
            const Map &in = plan.maps[step.source], &out = plan.maps[step.target];
            raise(kept_sums, Bands(out, groups).count * 2 * out.pixel());
            raise(row, out.pitch());
            raise(channels, out.channels);
            if (step.kind != CONVOLVE) continue;
            const Dense dense{in, out, step.kernel, step.stride, step.rectified != 0};
            raise(weights, dense.weights());
            if (WeightSums::rows_at_once(dense) < out.rows(groups)) raise(kept_weights, dense.weights() * LANES);
            if (step.stride != 1) raise(spread, spread_map(dense).pitch() * spread_map(dense).rows(groups));
        }
    }
};

class Executor {
  public:
    Executor(const Plan& plan, Index images, float* workspace, void* const* pointers, Index threads)
        : plan_(plan), lot_{images}, groups_(lot_.groups()), workspace_(workspace), pointers_(pointers),
          threads_(threads), needs_(plan, groups_), packed_(needs_.weights), kept_sums_(needs_.kept_sums),
          kept_weights_(needs_.kept_weights), spread_(needs_.spread), rooms_(needs_.row * (threads > 1 ? threads : 1)),
          slopes_(needs_.channels) {}

    void forward(const Pixels& images, float* out) {
        read_images(images, lot_, map(plan_.first), values(plan_.first));
        for (Index number = 0; number < plan_.count; ++number) {
            const Step& step = plan_.steps[number];
            if (step.kind == CONVOLVE) convolve(step);
            if (step.kind == HALVE) halve(step);
            if (step.kind == SUM) sum(step);
        }
        average_rectified(values(plan_.last), lot_, map(plan_.last), out);
    }

    void backward(const float* by_out, float* by_parameters) {
        by_parameters_ = by_parameters;
        average_rectified_backward(by_out, values(plan_.last), lot_, map(plan_.last), gradient(plan_.last));
        for (Index number = plan_.count - 1; number >= 0; --number) {
            const Step& step = plan_.steps[number];
            if (!step.live) continue;
            if (step.kind == CONVOLVE) convolve_backward(step);
            if (step.kind == HALVE) halve_backward(step);
            if (step.kind == SUM) sum_backward(step);
        }
    }

  private:
    const Map& map(Index number) const { return plan_.maps[number]; }
    float* values(Index number) const { return workspace_ + map(number).offset * LANES; }
    float* gradient(Index number) const { return workspace_ + map(number).gradient * LANES; }

    Dense dense(const Step& step) const {
        return {map(step.source), map(step.target), step.kernel, step.stride, step.rectified != 0};
    }

    NormTables tables(const Norm& norm) const {
        return {workspace_ + norm.moments * LANES, map(norm.map).channels};
    }

    template <class T>
    T* pointer(Index place) const {
        return static_cast<T*>(pointers_[place]);
    }

    NormParameters parameters(const Norm& norm) const {
        const Index start = norm.pointers;
        return {
            pointer<float>(start), pointer<float>(start + 1), pointer<float>(start + 2), pointer<float>(start + 3),
            pointer<std::int64_t>(start + 4),
        };
    }

    int threads_for(const Map& map, Index tasks) const {
        return thread_count(threads_, tasks, map.rows(groups_) * map.pitch());
    }

    // --- forward

    void convolve(const Step& step) {
        const Dense one = dense(step);
        const float* in = values(step.source);
        float* out = values(step.target);
        pack_forward(one, {pointer<float>(step.weight), step.strides}, packed_.at(0));
        const ForwardRow run = forward_row_of(one);
        write_rows(step, [&](Index row, int) { run(one, in, packed_.at(0), out, row); });
    }

    // Call body(row, number of the share) for each row of the target; find its statistics where they are needed.
    template <class Body>
    void write_rows(const Step& step, Body body) {
        const Map& out = map(step.target);
        const Bands bands(out, groups_);
        share(bands.count, threads_for(out, bands.count), [&](Index first, Index last, int share_number) {
            for (Index band = first; band < last; ++band)
                for (Index row = bands.first(band); row < bands.last(band); ++row) {
                    body(row, share_number);
                    if (step.norm < 0) continue;
                    const Index before = (row - bands.first(band)) * out.width;
                    add_row_statistics(
                        out, out.row(values(step.target), row), kept_sums_.at(band * 2 * out.pixel()), before
                    );
                }
        });
        if (step.norm < 0) return;
        const Norm& norm = plan_.norms[step.norm];
        const float* numbers = plan_.numbers + norm.numbers;
        finish_moments(out, lot_, kept_sums_.at(0), tables(norm), parameters(norm), numbers[0], numbers[1]);
    }

    void halve(const Step& step) {
        const Map &in = map(step.source), &out = map(step.target);
        each_row(out, groups_, threads_, [&](Index row) {
            halve_row(in, out, values(step.source), row, out.row(values(step.target), row));
        });
    }

    void sum(const Step& step) {
        const Map& out = map(step.target);
        write_rows(step, [&](Index row, int share_number) {
            float *to = out.row(values(step.target), row), *room = rooms_.at(share_number * needs_.row);
            for (Index place = 0; place < step.terms; ++place) {
                const SumTerm& term = plan_.terms[step.first_term + place];
                place == 0 ? add_term<false>(term, row, room, to) : add_term<true>(term, row, room, to);
            }
        });
    }

    template <bool ADD>
    void add_term(const SumTerm& term, Index row, float* room, float* to) const {
        const Map& from = map(term.map);
        const float* start = values(term.map);
        if (term.kind == AS_IT_IS) add_as_it_is<ADD>(from, from.row(start, row), to);
        if (term.kind == POOLED) add_pooled<ADD>(from, start, row, room, to);
        if (term.kind == NORMALIZED)
            add_normalized<ADD>(
                from, from.row(start, row), tables(plan_.norms[term.norm]), lot_.mask(row / from.height), to
            );
    }

    // --- backward

    void sum_backward(const Step& step) {
        const float* given = gradient(step.target);
        for (Index place = 0; place < step.terms; ++place) {
            const SumTerm& term = plan_.terms[step.first_term + place];
            if (term.kind == NORMALIZED) normalize_backward(plan_.norms[term.norm], given);
            if (term.kind != NORMALIZED && term.passes)
                term.adds ? pass_back<true>(term, given) : pass_back<false>(term, given);
        }
    }

    template <bool ADD>
    void pass_back(const SumTerm& term, const float* given) {
        const Map& to = map(term.map);
        const Index rows = to.rows(groups_);
        share(rows, threads_for(to, rows), [&](Index first, Index last, int share_number) {
            for (Index row = first; row < last; ++row) {
                float* into = to.row(gradient(term.map), row);
                if (term.kind == POOLED)
                    add_pooled_backward<ADD>(to, given, row, rooms_.at(share_number * needs_.row), into);
                else
                    add_as_it_is<ADD>(to, to.row(given, row), into);
            }
        });
    }

    void normalize_backward(const Norm& norm, const float* given) {
        const Map& of = map(norm.map);
        const Bands bands(of, groups_);
        const NormTables known = tables(norm);
        float* own = values(norm.map);
        const Index floats = 2 * of.pixel();
        share(bands.count, threads_for(of, bands.count), [&](Index first, Index last, int) {
            for (Index band = first; band < last; ++band) {
                float* kept = kept_sums_.at(band * floats);
                std::memset(kept, 0, std::size_t(floats) * sizeof(float));
                for (Index row = bands.first(band); row < bands.last(band); ++row)
                    add_row_products(of, of.row(given, row), of.row(own, row), known, kept);
            }
        });
        float* by_scale = norm.by_scale < 0 ? nullptr : by_parameters_ + norm.by_scale;
        float* by_shift = norm.by_shift < 0 ? nullptr : by_parameters_ + norm.by_shift;
        for (Index channel = 0; channel < of.channels; ++channel)
            slopes_[channel] =
                finish_products(of, lot_, bands, kept_sums_.at(0), known, channel, by_scale, by_shift);
        each_row(of, groups_, threads_, [&](Index row) {
            replace_by_gradient(of, of.row(given, row), of.row(own, row), known, slopes_.at(0), lot_.mask(row / of.height));
        });
    }

    void convolve_backward(const Step& step) {
        const Dense one = dense(step);
        const float* in = values(step.source);
        const float* given = gradient(step.target);
        dense_weights(
            one, in, given, kept_weights_.at(0), {by_parameters_ + step.by_weight, step.strides}, groups_, threads_
        );
        if (!step.passes) return;
        pack_backward(one, {pointer<float>(step.weight), step.strides}, packed_.at(0));
        dense_backward(
            one, given, packed_.at(0), spread_.at(0), in, gradient(step.source), step.adds != 0, groups_, threads_
        );
    }

    void halve_backward(const Step& step) {
        if (!step.passes) return;
        const Map &in = map(step.source), &out = map(step.target);
        const float* given = gradient(step.target);
        float* to = gradient(step.source);
        each_row(in, groups_, threads_, [&](Index row) {
            step.adds ? halve_backward_row<true>(in, out, given, row, in.row(to, row))
                      : halve_backward_row<false>(in, out, given, row, in.row(to, row));
        });
    }

    const Plan plan_;
    const Lot lot_;
    const Index groups_;
    float* const workspace_;
    void* const* const pointers_;
    const Index threads_;
    const Needs needs_;
    const Buffer<float> packed_, kept_sums_, kept_weights_, spread_, rooms_;
    const Buffer<NormGradient> slopes_;
    float* by_parameters_ = nullptr;
};

}  // namespace
