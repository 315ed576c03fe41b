// A whole network of one architecture, forwards and backwards in one call each, by a plan that Python makes once.
//
// fast/network_plan.py writes the tables below and says which map lies where in the workspace. The forward pass leaves
// there what the backward pass reads; that one replaces values that were normalised by their gradients.

#pragma once

#include "channelwise.hpp"
#include "dense.hpp"
#include "map_pools.hpp"
#include "sums.hpp"
#include "winograd_weights.hpp"

namespace {

enum StepKind : Index { CONVOLVE, HALVE, SUM, DEPTHWISE, MAX_POOL, AVERAGE_POOL, SHOW };
enum TermKind : Index { AS_IT_IS, NORMALIZED, POOLED };

struct Step {
    Index kind, source, target;
    Index kernel, stride, dilation, shift, rectified;  // of a convolution
    Index weight, strides[4];  // its place in the table of pointers, and its layout
    Index by_weight;           // place in the gradient of all parameters
    Index norm;                // that reads the results and needs their statistics; -1: none
    Index source_norm;         // through which a depthwise convolution reads its source; -1: none
    Index passed;              // the map that gets the gradient of what it reads
    Index first_term, terms;   // of a sum
    Index live;                // whether the result of the network depends on it
    Index passes, adds;        // whether the source gets a gradient, and has one already
};

struct SumTerm {
    Index kind, map, norm;
    Index factors;  // place in the table of pointers, of a number for every image; -1: none
    Index passes, adds;
};

struct Plan {
    const Map* maps;
    const Step* steps;
    Index count;
    const SumTerm* terms;
    const Norm* norms;
    const float* numbers;
    Index first, last;  // the map of the images, and the one that is averaged in the end
    Index rectified;    // whether it is rectified before
    Index segments;     // of an image, in lanes of their own
    Index evaluates;    // whether normalisations use their running statistics
};

inline Dense dense_of(const Plan& plan, const Step& step) {
    return {
        plan.maps[step.source], plan.maps[step.target], step.kernel, step.stride, step.rectified != 0, step.shift,
    };
}

inline Depthwise depthwise_of(const Plan& plan, const Step& step) {
    return {plan.maps[step.source], plan.maps[step.target], step.kernel, step.stride, step.dilation};
}

// Largest needs of all steps, in floats.
struct Needs {
    Index weights = 0, kept_weights = 0, kept_sums = 0, spread = 0, row = 0, channels = 0, depthwise = 0, ring = 0;
    Index parts = 0;  // sums of the parts of a gradient of weights

    static void raise(Index& most, Index value) { most = most < value ? value : most; }

    Needs(const Plan& plan, Index groups) {
        for (Index number = 0; number < plan.count; ++number) {
            const Step& step = plan.steps[number];
            const Map &in = plan.maps[step.source], &out = plan.maps[step.target];
            raise_for(in, groups);
            raise_for(out, groups);
            if (step.kind == DEPTHWISE) raise_for(depthwise_of(plan, step), groups);
            if (step.kind != CONVOLVE) continue;
            const Dense dense = dense_of(plan, step);
            raise(weights, dense.weights());
            if (fits_winograd(dense)) {
                raise(weights, winograd_weights(dense));
                raise(ring, winograd_room(dense));
            }
            if (fits_winograd_weights(dense)) {
                const WinogradWeights of{dense, nullptr, nullptr, groups};
                raise(ring, of.room());
                raise(parts, of.parts() * of.sums());
                continue;
            }
            if (WeightSums::rows_at_once(dense) < out.rows(groups)) raise(kept_weights, dense.weights() * LANES);
            if (step.stride != 1) raise(spread, spread_map(dense).pitch() * spread_map(dense).rows(groups));
        }
    }

    void raise_for(const Map& map, Index groups) {
        raise(kept_sums, Bands(map, groups).count * 2 * map.depth());
        raise(row, (map.width + 2) * map.depth());
        raise(channels, map.channels);
    }

    void raise_for(const Depthwise& of, Index groups) {
        raise(depthwise, of.out.channels * of.taps());
        raise(kept_weights, Bands(of.in, groups).count * of.kept());
        raise(ring, RowRing::floats(of.span(), of.in.width + 2 * of.pad(), of.in.depth()));
    }
};

class Executor {
  public:
    Executor(const Plan& plan, Index images, float* workspace, void* const* pointers, Index threads)
        : plan_(plan), lot_{images, plan.segments}, groups_(lot_.groups()), workspace_(workspace), pointers_(pointers),
          threads_(threads), needs_(plan, groups_), packed_(needs_.weights), packed_depthwise_(needs_.depthwise),
          kept_sums_(needs_.kept_sums), kept_weights_(needs_.kept_weights), spread_(needs_.spread),
          rooms_(needs_.row * (threads > 1 ? threads : 1)), rings_(needs_.ring * (threads > 1 ? threads : 1)),
          parts_(needs_.parts), slopes_(needs_.channels) {}

    // shown: receives the maps that are shown, one after the other.
    void forward(const Pixels& images, float* out, float* shown) {
        read_images(images, lot_, map(plan_.first), values(plan_.first));
        for (Index number = 0; number < plan_.count; ++number) {
            const Step& step = plan_.steps[number];
            switch (step.kind) {
                case CONVOLVE: convolve(step, number > 0 ? plan_.steps[number - 1] : step); break;
                case HALVE: halve(step); break;
                case SUM: sum(step); break;
                case DEPTHWISE: break;  // by the convolution that follows, row by row
                case SHOW: write_pixels(values(step.source), lot_, map(step.source), shown); break;
                default: pool(step);
            }
        }
        plan_.rectified ? average<true>(values(plan_.last), lot_, map(plan_.last), out)
                        : average<false>(values(plan_.last), lot_, map(plan_.last), out);
    }

    // by_shown: null where nothing depends on what was shown.
    void backward(const float* by_out, const float* by_shown, float* by_parameters) {
        by_parameters_ = by_parameters;
        const Index last = plan_.last;
        plan_.rectified ? average_backward<true>(by_out, values(last), lot_, map(last), gradient(last))
                        : average_backward<false>(by_out, values(last), lot_, map(last), gradient(last));
        for (Index number = plan_.count - 1; number >= 0; --number) {
            const Step& step = plan_.steps[number];
            if (!step.live) continue;
            switch (step.kind) {
                case CONVOLVE: convolve_backward(step); break;
                case HALVE: halve_backward(step); break;
                case SUM: sum_backward(step); break;
                case DEPTHWISE: depthwise_backward(step); break;
                case SHOW:
                    read_pixels(by_shown, lot_, map(step.source), gradient(step.source), step.adds != 0);
                    break;
                default: pool_backward(step);
            }
        }
    }

  private:
    const Map& map(Index number) const { return plan_.maps[number]; }
    float* values(Index number) const { return workspace_ + map(number).offset * LANES; }
    float* gradient(Index number) const { return workspace_ + map(number).gradient * LANES; }

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

    // What a term is multiplied by, for the images of a group.
    Vector lanes_of(const SumTerm& term, Index group) const {
        if (term.factors < 0) return lot_.mask(group);
        return lot_.spread(pointer<float>(term.factors), group);
    }

    // --- forward

    void convolve(const Step& step, const Step& before) {
        const Dense one = dense_of(plan_, step);
        const float* in = values(step.source);
        float* out = values(step.target);
        const Weights weights{pointer<float>(step.weight), step.strides};
        if (fits_winograd(one)) {
            pack_winograd_forward(one, weights, packed_.at(0));
            return write_rows(step, [&](Index row, int share_number, None&) {
                if (row % 2 == 0)
                    winograd_forward(one, in, packed_.at(0), out, row, rings_.at(share_number * needs_.ring));
            });
        }
        pack_forward(one, weights, packed_.at(0));
        const ForwardRow run = forward_row_of(one);
        if (before.kind != DEPTHWISE)
            return write_rows(step, [&](Index row, int, None&) { run(one, in, packed_.at(0), out, row); });
        const NormTables read = tables_read(before);
        const DepthwiseForward first = start_depthwise(before, read);
        float* between = values(step.source);
        write_rows(
            step,
            [&](Index row, int, RowRing& ring) {
                first.row(row, ring, one.in.row(between, row));
                run(one, in, packed_.at(0), out, row);
            },
            [&](int share_number) { return first.make_ring(rings_.at(share_number * needs_.ring)); }
        );
    }

    NormTables tables_read(const Step& step) const {
        return step.source_norm < 0 ? NormTables(nullptr, 0) : tables(plan_.norms[step.source_norm]);
    }

    Reader reader_of(const Step& step, const NormTables& read) const {
        return {step.source_norm < 0 ? nullptr : &read};
    }

    DepthwiseForward start_depthwise(const Step& step, const NormTables& read) const {
        const Depthwise of = depthwise_of(plan_, step);
        pack_depthwise(of, {pointer<float>(step.weight), step.strides}, false, packed_depthwise_.at(0));
        return {
            of, values(step.source), packed_depthwise_.at(0), reader_of(step, read), lot_, depthwise_row_of(of),
        };
    }

    struct None {};

    // Call body(row, number of the share, its own state) for each row of the target; find its statistics where they
    // are needed and not known.
    template <class Body>
    void write_rows(const Step& step, Body body) {
        write_rows(step, body, [](int) { return None{}; });
    }

    template <class Body, class Start>
    void write_rows(const Step& step, Body body, Start start) {
        const Map& out = map(step.target);
        const Bands bands(out, groups_);
        const Norm* norm = step.norm < 0 ? nullptr : &plan_.norms[step.norm];
        const bool counts = norm != nullptr && !plan_.evaluates;
        const Map& whole = norm == nullptr ? out : map(norm->map);  // may have more channels than those written here
        share(bands.count, threads_for(out, bands.count), [&](Index first, Index last, int share_number) {
            auto state = start(share_number);
            for (Index band = first; band < last; ++band)
                for (Index row = bands.first(band); row < bands.last(band); ++row) {
                    body(row, share_number, state);
                    if (!counts) continue;
                    const Index before = (row - bands.first(band)) * out.width;
                    add_row_statistics(
                        whole, whole.row(values(norm->map), row), kept_sums_.at(band * 2 * whole.depth()), before
                    );
                }
        });
        if (norm == nullptr) return;
        const float* numbers = plan_.numbers + norm->numbers;
        counts ? finish_moments(whole, lot_, kept_sums_.at(0), tables(*norm), parameters(*norm), numbers[0], numbers[1])
               : recall_moments(whole, tables(*norm), parameters(*norm), numbers[0]);
    }

    MapPool pool_of(const Step& step) const {
        return {map(step.source), map(step.target), step.stride, step.kind == MAX_POOL, lot_};
    }

    void pool(const Step& step) {
        const MapPool of = pool_of(step);
        write_rows(step, [&](Index row, int, None&) {
            map_pool_row(of, values(step.source), row, of.out.row(values(step.target), row));
        });
    }

    void halve(const Step& step) {
        const Map &in = map(step.source), &out = map(step.target);
        each_row(out, groups_, threads_, [&](Index row) {
            halve_row(in, out, values(step.source), row, out.row(values(step.target), row));
        });
    }

    void sum(const Step& step) {
        const Map& out = map(step.target);
        write_rows(step, [&](Index row, int share_number, None&) {
            float *to = out.row(values(step.target), row), *room = rooms_.at(share_number * needs_.row);
            for (Index place = 0; place < step.terms; ++place) {
                const SumTerm& term = plan_.terms[step.first_term + place];
                place == 0 ? add_term<false>(term, out, row, room, to) : add_term<true>(term, out, row, room, to);
            }
        });
    }

    template <bool ADD>
    void add_term(const SumTerm& term, const Map& out, Index row, float* room, float* to) const {
        const Map& from = map(term.map);
        const float* start = values(term.map);
        const Vector lanes = lanes_of(term, row / from.height);
        const Strides strides{from.pixel(), out.pixel()};
        if (term.kind == AS_IT_IS) add_as_it_is<ADD>(from, strides, from.row(start, row), lanes, to);
        if (term.kind == POOLED) add_pooled<ADD>(from, out.pixel(), start, row, room, lanes, to);
        if (term.kind == NORMALIZED)
            add_normalized<ADD>(from, strides, from.row(start, row), tables(plan_.norms[term.norm]), lanes, to);
    }

    // --- backward

    void sum_backward(const Step& step) {
        const Given given{map(step.target), gradient(step.target)};
        for (Index place = 0; place < step.terms; ++place) {
            const SumTerm& term = plan_.terms[step.first_term + place];
            const auto lanes = [&](Index group) { return lanes_of(term, group); };
            if (term.kind == NORMALIZED) normalize_backward(plan_.norms[term.norm], given, lanes);
            if (term.kind != NORMALIZED && term.passes)
                term.adds ? pass_back<true>(term, given) : pass_back<false>(term, given);
        }
    }

    struct Given {  // a gradient, and the map whose it is
        const Map& map;
        const float* values;
    };

    template <bool ADD>
    void pass_back(const SumTerm& term, const Given& given) {
        const Map& to = map(term.map);
        const Index rows = to.rows(groups_);
        share(rows, threads_for(to, rows), [&](Index first, Index last, int share_number) {
            for (Index row = first; row < last; ++row) {
                float *into = to.row(gradient(term.map), row), *room = rooms_.at(share_number * needs_.row);
                const Vector lanes = lanes_of(term, row / to.height);
                const Strides strides{given.map.pixel(), to.pixel()};
                if (term.kind == POOLED)
                    add_pooled_backward<ADD>(given.map, to.pixel(), given.values, row, room, lanes, into);
                else
                    add_as_it_is<ADD>(to, strides, given.map.row(given.values, row), lanes, into);
            }
        });
    }

    // lanes(group): what the gradient of its images is multiplied by.
    template <class Lanes>
    void normalize_backward(const Norm& norm, const Given& given, Lanes lanes) {
        const Map& of = map(norm.map);
        const Bands bands(of, groups_);
        const NormTables known = tables(norm);
        float* own = values(norm.map);
        const Index floats = 2 * of.depth(), pixel = given.map.pixel();
        share(bands.count, threads_for(of, bands.count), [&](Index first, Index last, int) {
            for (Index band = first; band < last; ++band) {
                float* kept = kept_sums_.at(band * floats);
                std::memset(kept, 0, std::size_t(floats) * sizeof(float));
                for (Index row = bands.first(band); row < bands.last(band); ++row)
                    add_row_products(
                        of, pixel, given.map.row(given.values, row), of.row(own, row), known, lanes(row / of.height), kept
                    );
            }
        });
        float* by_scale = norm.by_scale < 0 ? nullptr : by_parameters_ + norm.by_scale;
        float* by_shift = norm.by_shift < 0 ? nullptr : by_parameters_ + norm.by_shift;
        for (Index channel = 0; channel < of.channels; ++channel)
            slopes_[channel] =
                finish_products(of, lot_, bands, kept_sums_.at(0), known, channel, by_scale, by_shift);
        each_row(of, groups_, threads_, [&](Index row) {
            const Index group = row / of.height;
            replace_by_gradient(
                of, pixel, given.map.row(given.values, row), of.row(own, row), known, slopes_.at(0), lot_.mask(group),
                lanes(group)
            );
        });
    }

    void convolve_backward(const Step& step) {
        const Dense one = dense_of(plan_, step);
        const float* in = values(step.source);
        const float* given = gradient(step.target);
        const Weights by_weights{by_parameters_ + step.by_weight, step.strides};
        fits_winograd_weights(one)
            ? winograd_weights_gradient({one, in, given, groups_}, rings_.at(0), parts_.at(0), by_weights, threads_)
            : dense_weights(one, in, given, kept_weights_.at(0), by_weights, groups_, threads_);
        if (!step.passes) return;
        const Weights weights{pointer<float>(step.weight), step.strides};
        if (fits_winograd(one)) return winograd_backward(step, one, weights);
        pack_backward(one, weights, packed_.at(0));
        dense_backward(
            one, given, packed_.at(0), spread_.at(0), in, gradient(step.source), step.adds != 0, groups_, threads_
        );
    }

    void winograd_backward(const Step& step, const Dense& one, const Weights& weights) {
        pack_winograd_backward(one, weights, packed_.at(0));
        const WinogradBackward run = winograd_backward_of(one.rectified, step.adds != 0);
        const Index pairs = one.in.rows(groups_) / 2;
        share(pairs, threads_for(one.in, pairs), [&](Index first, Index last, int share_number) {
            for (Index pair = first; pair < last; ++pair)
                run(one, gradient(step.target), packed_.at(0), values(step.source), gradient(step.source), 2 * pair,
                    rings_.at(share_number * needs_.ring));
        });
    }

    void depthwise_backward(const Step& step) {
        const Depthwise of = depthwise_of(plan_, step);
        const Bands bands(of.in, groups_);
        const NormTables read = tables_read(step);
        pack_depthwise(of, {pointer<float>(step.weight), step.strides}, true, packed_depthwise_.at(0));
        const DepthwiseBackward task{
            of, values(step.source), gradient(step.target), packed_depthwise_.at(0),
            step.passes ? gradient(step.passed) : nullptr, step.adds != 0, reader_of(step, read), lot_,
        };
        const DepthwiseBackwardRow run = depthwise_backward_row_of(of);
        share(bands.count, threads_for(of.in, bands.count), [&](Index first, Index last, int share_number) {
            RowRing ring = task.make_ring(rings_.at(share_number * needs_.ring));
            for (Index band = first; band < last; ++band) {
                float* kept = kept_weights_.at(band * of.kept());
                std::memset(kept, 0, std::size_t(of.kept()) * sizeof(float));
                for (Index row = bands.first(band); row < bands.last(band); ++row) (task.*run)(row, ring, kept);
            }
        });
        finish_depthwise_weights(
            of, kept_weights_.at(0), bands.count, {by_parameters_ + step.by_weight, step.strides}
        );
        if (step.source_norm < 0) return;
        const Given given{map(step.passed), gradient(step.passed)};
        normalize_backward(plan_.norms[step.source_norm], given, [&](Index group) { return lot_.mask(group); });
    }

    void pool_backward(const Step& step) {
        if (!step.passes) return;
        const MapPool of = pool_of(step);
        float* to = gradient(step.source);
        share(groups_, threads_for(of.in, groups_), [&](Index first, Index last, int) {
            for (Index group = first; group < last; ++group) {
                for (Index row = group * of.in.height; !step.adds && row < (group + 1) * of.in.height; ++row)
                    clear_row(of.in, of.in.row(to, row));
                map_pool_backward(of, values(step.source), gradient(step.target), group, to);
            }
        });
    }

    static void clear_row(const Map& map, float* row) {
        for (Index x = 0; x < map.width; ++x, row += map.pixel())
            std::memset(row, 0, std::size_t(map.depth()) * sizeof(float));
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
    const Buffer<float> packed_, packed_depthwise_, kept_sums_, kept_weights_, spread_, rooms_, rings_, parts_;
    const Buffer<NormGradient> slopes_;
    float* by_parameters_ = nullptr;
};

}  // namespace
