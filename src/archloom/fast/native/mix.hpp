// Normalise, weigh and add terms: forward and backward.

#pragma once

#include <cmath>

#include "threads.hpp"

namespace {

constexpr double EPSILON = 1e-5;

struct Term {  // the layout of the caller's table of 64-bit numbers
    Image image;
    float* moments;  // [2][channels], mean and 1/std; null for a term that is not normalised
    Index missing;   // the moments have to be computed
    Image slot;      // receives the gradient; data is null if it is not wanted
    Index filled;

    bool wanted() const { return slot.data != nullptr; }
    bool normalized() const { return moments != nullptr; }
};

// --- statistics

// Sum a block over its pixels, channel by channel, into the first channels of sums; the rest of the period is scratch.
inline void sum_block(const float* values, const Cut& cut, Index pixels, float* sums) {
    std::memset(sums, 0, std::size_t(cut.period) * sizeof(float));
    sweep<1>(
        Tables<0>{}, cut.period, pixels * cut.channels,
        [=](auto place, const Vector*, Vector* sum) __attribute__((always_inline)) { sum[0] += place.get(values); },
        sums
    );
    fold(sums, cut);
}

// Sums of values and of squares over a block, relative to its mean. That is cheap while the block is in the cache, and
// needed: for values far from zero, the squares would cancel a small variance.
inline void add_moments(const float* values, const Cut& cut, Index pixels, float* work, double* totals) {
    const Index channels = cut.channels, period = cut.period;
    float *shift = work, *sums = work + period;
    sum_block(values, cut, pixels, sums);
    for (Index channel = 0; channel < channels; ++channel) shift[channel] = sums[channel] / float(pixels);
    for (Index entry = channels; entry < period; ++entry) shift[entry] = shift[entry - channels];
    std::memset(sums, 0, std::size_t(2 * period) * sizeof(float));
    sweep<2>(
        Tables<1>{{shift}}, period, pixels * channels,
        [=](auto place, const Vector* table, Vector* sum) __attribute__((always_inline)) {
            const Vector value = place.keep(place.get(values) - table[0]);
            sum[0] += value;
            sum[1] += value * value;
        },
        sums
    );
    fold(sums, cut);
    fold(sums + period, cut);
    for (Index channel = 0; channel < channels; ++channel) {
        const double from = double(shift[channel]), sum = double(sums[channel]), count = double(pixels);
        totals[channel] += sum + count * from;
        totals[channels + channel] += double(sums[period + channel]) + from * (2.0 * sum + count * from);
    }
}

// Add up the rows of a table, in order; the first becomes the sum.
inline const double* add_rows(double* rows, Index count, Index length) {
    for (Index row = 1; row < count; ++row)
        for (Index entry = 0; entry < length; ++entry) rows[entry] += rows[row * length + entry];
    return rows;
}

inline void find_moments(const Term* terms, Index count, const Cut& cut, int threads) {
    Index missing = 0;
    Buffer<const Term*> wanted(count);
    for (Index term = 0; term < count; ++term)
        if (terms[term].moments != nullptr && terms[term].missing) wanted[missing++] = terms + term;
    if (missing == 0) return;

    const Index channels = cut.channels, length = missing * 2 * channels, work = 3 * cut.period + cut.floats();
    Buffer<double> totals(cut.chunks * length);
    Buffer<float> works(threads * work);
    totals.clear();
    share(cut.chunks, threads, [&](Index first, Index last, int number) {
        float* own = works.at(number * work);
        for (Index chunk = first; chunk < last; ++chunk)
            for (Index term = 0; term < missing; ++term)
                for (Index block = cut.first_block(chunk); block < cut.first_block(chunk + 1); ++block) {
                    const Index pixels = cut.count(block);
                    const float* values =
                        flat(wanted[term]->image, cut.first(block), pixels, channels, own + 3 * cut.period);
                    add_moments(values, cut, pixels, own, totals.at(chunk * length + term * 2 * channels));
                }
    });

    const double* sums = add_rows(totals.at(0), cut.chunks, length);
    for (Index term = 0; term < missing; ++term, sums += 2 * channels)
        for (Index channel = 0; channel < channels; ++channel) {
            const double mean = sums[channel] / double(cut.pixels);
            double variance = sums[channels + channel] / double(cut.pixels) - mean * mean;
            if (variance < 0.0) variance = 0.0;
            wanted[term]->moments[channel] = float(mean);
            wanted[term]->moments[channels + channel] = float(1.0 / std::sqrt(variance + EPSILON));
        }
}

// --- forward

// total (+)= the sum over TERMS of (values - mean) * scale
template <int TERMS, bool FIRST>
inline void add_terms(
    float* total, const float* const* values, const float* tables, Index period, Index floats
) {
    Tables<2 * TERMS> entries;
    for (int table = 0; table < 2 * TERMS; ++table) entries.of[table] = tables + table * period;
    const float *one = values[0], *two = values[TERMS - 1];
    sweep(entries, period, floats, [=](auto place, const Vector* table, Vector*) __attribute__((always_inline)) {
        Vector sum = (place.get(one) - table[0]) * table[1];
        if constexpr (TERMS == 2) sum += (place.get(two) - table[2]) * table[3];
        if constexpr (!FIRST) sum += place.get(total);
        place.put(total, sum);
    });
}

template <bool FIRST>
inline void add_terms(
    float* total, const float* const* values, const float* tables, Index period, Index floats, Index terms
) {
    if (terms == 2)
        add_terms<2, FIRST>(total, values, tables, period, floats);
    else
        add_terms<1, FIRST>(total, values, tables, period, floats);
}

inline void mix(
    const Term* terms, Index count, const float* weights, Index pixels, Index channels, float* out, Index threads_given
) {
    const Cut cut(pixels, channels);
    const Index period = cut.period, floats = cut.floats();
    const int threads = thread_count(threads_given, cut.chunks, count * pixels * channels);
    find_moments(terms, count, cut, threads);

    Buffer<float> tables(count * 2 * period), scales(channels), copies(threads * 2 * floats);
    for (Index term = 0; term < count; ++term) {
        float *mean = tables.at(2 * term * period), *scale = mean + period;
        if (const float* moments = terms[term].moments) {
            for (Index channel = 0; channel < channels; ++channel)
                scales[channel] = moments[channels + channel] * weights[term];
            repeat(mean, moments, channels, period);
            repeat(scale, scales.at(0), channels, period);
        } else {
            for (Index entry = 0; entry < period; ++entry) mean[entry] = 0.0f, scale[entry] = weights[term];
        }
    }
    share(cut.blocks, threads, [&](Index first, Index last, int number) {
        for (Index block = first; block < last; ++block) {
            const Index start = cut.first(block), here = cut.count(block);
            for (Index term = 0; term < count; term += 2) {
                const float* values[2];
                const Index pair = count - term < 2 ? 1 : 2;
                for (Index which = 0; which < pair; ++which)
                    values[which] = flat(
                        terms[term + which].image, start, here, channels, copies.at((2 * number + which) * floats)
                    );
                float* total = out + start * channels;
                const float* table = tables.at(2 * term * period);
                if (term == 0)
                    add_terms<true>(total, values, table, period, here * channels, pair);
                else
                    add_terms<false>(total, values, table, period, here * channels, pair);
            }
        }
    });
}

// --- backward

inline void add_to(double* __restrict totals, const float* __restrict sums, Index channels) {
    for (Index channel = 0; channel < channels; ++channel) totals[channel] += double(sums[channel]);
}

inline void add_gradients(const float* gradient, const Cut& cut, Index pixels, float* sums, double* totals) {
    sum_block(gradient, cut, pixels, sums);
    add_to(totals, sums, cut.channels);
}

// Of gradient * (values - mean)
inline void add_products(
    const float* gradient, const float* values, const float* mean, const Cut& cut, Index pixels, float* sums,
    double* totals
) {
    std::memset(sums, 0, std::size_t(cut.period) * sizeof(float));
    sweep<1>(
        Tables<1>{{mean}}, cut.period, pixels * cut.channels,
        [=](auto place, const Vector* table, Vector* sum) __attribute__((always_inline)) {
            sum[0] += place.keep(place.get(gradient) * (place.get(values) - table[0]));
        },
        sums
    );
    fold(sums, cut);
    add_to(totals, sums, cut.channels);
}

// Turn the gradient of weight * normalised image into that of the image: four tables of a period each.
// gradient of the image = weight / std * (gradient - sum(gradient) / n - normalised * sum(gradient * normalised) / n)
struct Slope {
    static constexpr Index TABLES = 4;

    // products: sum of gradient * (image - mean)
    static void set(
        float* tables, const float* moments, double weight, const double* gradients, const double* products,
        const Cut& cut
    ) {
        const Index channels = cut.channels, period = cut.period;
        for (Index channel = 0; channel < channels; ++channel) {
            const double scale = double(moments[channels + channel]), count = double(cut.pixels);
            tables[channel] = moments[channel];
            tables[period + channel] = float(weight * scale);
            tables[2 * period + channel] = float(-weight * scale * scale * scale * products[channel] / count);
            tables[3 * period + channel] = float(-weight * scale * gradients[channel] / count);
        }
        for (Index table = 0; table < TABLES; ++table)
            for (Index entry = channels; entry < period; ++entry)
                tables[table * period + entry] = tables[table * period + entry - channels];
    }

    template <bool ADD>
    static void apply(
        float* to, const float* gradient, const float* values, const float* tables, Index period, Index floats
    ) {
        const Tables<4> entries{{tables, tables + period, tables + 2 * period, tables + 3 * period}};
        sweep(entries, period, floats, [=](auto place, const Vector* table, Vector*) __attribute__((always_inline)) {
            Vector result = table[3] + table[2] * (place.get(values) - table[0]) + table[1] * place.get(gradient);
            if constexpr (ADD) result += place.get(to);
            place.put(to, result);
        });
    }
};

template <bool ADD>
inline void scale_into(float* to, const float* gradient, float weight, Index period, Index floats) {
    sweep(Tables<0>{}, period, floats, [=](auto place, const Vector*, Vector*) __attribute__((always_inline)) {
        Vector result = place.get(gradient) * weight;
        if constexpr (ADD) result += place.get(to);
        place.put(to, result);
    });
}

// Call write(target, whether to add) for some pixels of a slot, through a copy if they are not adjacent.
template <class Write>
inline void through_copy(
    const Image& slot, bool filled, Index first, Index pixels, Index channels, float* copy, Write write
) {
    if (slot.pixel == channels) {
        write(slot.data + first * channels, filled);
    } else {
        write(copy, false);
        put(slot, first, copy, pixels, channels, filled);
    }
}

inline void write_gradient(
    const Term& term, float weight, const float* gradient, const float* tables, const Cut& cut, Index block,
    float* copies
) {
    const Index start = cut.first(block), pixels = cut.count(block), channels = cut.channels;
    const Index period = cut.period, floats = pixels * channels;
    const float* values =
        term.moments == nullptr ? nullptr : flat(term.image, start, pixels, channels, copies);
    through_copy(
        term.slot, term.filled != 0, start, pixels, channels, copies + cut.floats(), [&](float* to, bool add) {
            if (values == nullptr)
                add ? scale_into<true>(to, gradient, weight, period, floats)
                    : scale_into<false>(to, gradient, weight, period, floats);
            else
                add ? Slope::apply<true>(to, gradient, values, tables, period, floats)
                    : Slope::apply<false>(to, gradient, values, tables, period, floats);
        }
    );
}

inline void mix_backward(
    const Image& gradient, const Term* terms, Index count, const float* weights, Index pixels, Index channels,
    float* by_weight, Index threads_given
) {
    const Cut cut(pixels, channels);
    const Index period = cut.period, floats = cut.floats(), length = (1 + count) * channels;
    const int threads = thread_count(threads_given, cut.chunks, count * pixels * channels);

    Buffer<float> tables(count * Slope::TABLES * period), works(threads * (period + 3 * floats));
    tables.clear();  // a term that is not normalised has mean zero here
    for (Index term = 0; term < count; ++term)
        if (const float* moments = terms[term].moments)
            repeat(tables.at(term * Slope::TABLES * period), moments, channels, period);

    const auto needed = [=](const Term& term) { return by_weight != nullptr || (term.normalized() && term.wanted()); };
    Buffer<double> totals(cut.chunks * length);  // of the gradient, then of its products with every term
    totals.clear();
    share(cut.chunks, threads, [&](Index first, Index last, int number) {
        float *sums = works.at(number * (period + 3 * floats)), *copies = sums + period;
        for (Index chunk = first; chunk < last; ++chunk) {
            double* own = totals.at(chunk * length);
            for (Index block = cut.first_block(chunk); block < cut.first_block(chunk + 1); ++block) {
                const Index start = cut.first(block), here = cut.count(block);
                const float* given = flat(gradient, start, here, channels, copies);
                add_gradients(given, cut, here, sums, own);
                for (Index term = 0; term < count; ++term) {
                    if (!needed(terms[term])) continue;
                    const float* values = flat(terms[term].image, start, here, channels, copies + floats);
                    const float* mean = tables.at(term * Slope::TABLES * period);
                    add_products(given, values, mean, cut, here, sums, own + (1 + term) * channels);
                }
            }
        }
    });

    const double* sums = add_rows(totals.at(0), cut.chunks, length);
    bool wanted = false;
    for (Index term = 0; term < count; ++term) {
        const double* products = sums + (1 + term) * channels;
        const float* moments = terms[term].moments;
        double total = 0.0;
        for (Index channel = 0; channel < channels; ++channel)
            total += products[channel] * (moments == nullptr ? 1.0 : double(moments[channels + channel]));
        if (by_weight != nullptr) by_weight[term] = float(total);
        if (moments != nullptr)
            Slope::set(tables.at(term * Slope::TABLES * period), moments, double(weights[term]), sums, products, cut);
        wanted = wanted || terms[term].wanted();
    }
    if (!wanted) return;
    share(cut.blocks, threads, [&](Index first, Index last, int number) {
        float* copies = works.at(number * (period + 3 * floats)) + period;
        for (Index block = first; block < last; ++block) {
            const float* given = flat(gradient, cut.first(block), cut.count(block), channels, copies);
            for (Index term = 0; term < count; ++term)
                if (terms[term].wanted())
                    write_gradient(
                        terms[term], weights[term], given, tables.at(term * Slope::TABLES * period), cut, block,
                        copies + floats
                    );
        }
    });
}

}  // namespace
