// The functions that Python calls, for one instruction set. fast/kernels.py is their reference.
//
// Each returns 0, or 1 if there was not enough memory.

#pragma once

#include "decoder.hpp"
#include "network.hpp"
#include "pools.hpp"
#include "products.hpp"
#include "recurrent.hpp"
#include "workspace.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

template <class Function>
int unless_out_of_memory(Function function) {
    try {
        function();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace

// Increase it whenever a signature below changes: a library of an older build is then not loaded.
EXPORTED int archloom_interface() { return 9; }

EXPORTED void archloom_use_threads(void* parallel, void* number) {
    start_threads = reinterpret_cast<StartThreads>(parallel);
    thread_number = reinterpret_cast<ThreadNumber>(number);
}

EXPORTED int archloom_moments(float* image, Index pixel, Index pixels, Index channels, float* moments, Index threads) {
    return unless_out_of_memory([&] {
        const Term term{{image, pixel}, moments, 1, {nullptr, 0}, 0};
        const Cut cut(pixels, channels);
        find_moments(&term, 1, cut, thread_count(threads, cut.chunks, pixels * channels));
    });
}

EXPORTED int archloom_mix(
    const Term* terms, Index count, const float* weights, Index pixels, Index channels, float* out, Index threads
) {
    return unless_out_of_memory([&] { mix(terms, count, weights, pixels, channels, out, threads); });
}

EXPORTED int archloom_mix_backward(
    float* gradient, Index gradient_pixel, const Term* terms, Index count, const float* weights, Index pixels,
    Index channels, float* by_weight, Index threads
) {
    return unless_out_of_memory([&] {
        mix_backward({gradient, gradient_pixel}, terms, count, weights, pixels, channels, by_weight, threads);
    });
}

EXPORTED int archloom_depthwise(
    float* image, Index pixel, const float* moments, const Shape* shape, const Kernel* kernels, Index count, float* out,
    Index threads
) {
    return unless_out_of_memory([&] { depthwise({image, pixel}, moments, *shape, kernels, count, out, threads); });
}

EXPORTED int archloom_depthwise_backward(
    const float* gradients, Index gradient_kernel, Index gradient_pixel, float* image, Index pixel,
    const float* moments, const Shape* shape, const Kernel* kernels, Index count, float* slot, Index slot_pixel,
    Index filled, Index weights_wanted, Index threads
) {
    return unless_out_of_memory([&] {
        depthwise_backward(
            Backward{
                {image, pixel}, moments, *shape, kernels, count, gradients, gradient_kernel, gradient_pixel,
                {slot, slot_pixel}, filled != 0, weights_wanted != 0,
            },
            threads
        );
    });
}

EXPORTED int archloom_average_pool(float* image, Index pixel, const Shape* shape, float* out, Index threads) {
    return unless_out_of_memory([&] { pool<Average>({image, pixel}, *shape, out, threads); });
}

EXPORTED int archloom_max_pool(float* image, Index pixel, const Shape* shape, float* out, Index threads) {
    return unless_out_of_memory([&] { pool<Largest>({image, pixel}, *shape, out, threads); });
}

EXPORTED int archloom_average_pool_backward(
    float* gradient, Index gradient_pixel, float* image, Index pixel, const Shape* shape, float* slot, Index slot_pixel,
    Index filled, Index threads
) {
    return unless_out_of_memory([&] {
        average_pool_backward(
            {{gradient, gradient_pixel}, {image, pixel}, *shape, {slot, slot_pixel}, filled != 0}, threads
        );
    });
}

EXPORTED int archloom_max_pool_backward(
    float* gradient, Index gradient_pixel, float* image, Index pixel, const Shape* shape, float* slot, Index slot_pixel,
    Index filled, Index threads
) {
    return unless_out_of_memory([&] {
        max_pool_backward(
            {{gradient, gradient_pixel}, {image, pixel}, *shape, {slot, slot_pixel}, filled != 0}, threads
        );
    });
}

EXPORTED int archloom_rectify_backward(
    float* gradient, Index gradient_pixel, float* image, Index pixel, const Shape* shape, float* slot, Index slot_pixel,
    Index filled, Index threads
) {
    return unless_out_of_memory([&] {
        rectify_backward(
            {{gradient, gradient_pixel}, {image, pixel}, *shape, {slot, slot_pixel}, filled != 0}, threads
        );
    });
}

EXPORTED int archloom_products(
    const float* images, const float* matrices, const Branches* all, float* out, Index into_one, Index add, Index threads
) {
    return unless_out_of_memory([&] { products(images, matrices, out, *all, into_one != 0, add != 0, threads); });
}

EXPORTED int archloom_inner_products(
    const float* left, const float* right, const Branches* all, float* out, Index threads
) {
    return unless_out_of_memory([&] { inner_products(left, right, out, *all, threads); });
}

// How many images a vector holds: workspaces depend on it.
EXPORTED int archloom_lanes() { return int(LANES); }

EXPORTED int archloom_clear(float* memory, Index floats) {
    clear_workspace(memory, std::size_t(floats) * sizeof(float));
    return 0;
}

EXPORTED int archloom_network(
    const Plan* plan, Index images, float* workspace, void* const* pointers, const float* inputs, const Index* strides,
    float* out, float* shown, Index threads
) {
    return unless_out_of_memory([&] {
        Executor(*plan, images, workspace, pointers, threads).forward({inputs, strides}, out, shown);
    });
}

EXPORTED int archloom_network_backward(
    const Plan* plan, Index images, float* workspace, void* const* pointers, const float* by_out,
    const float* by_shown, float* by_parameters, Index threads
) {
    return unless_out_of_memory([&] {
        Executor(*plan, images, workspace, pointers, threads).backward(by_out, by_shown, by_parameters);
    });
}

EXPORTED int archloom_recurrent(const Segment* segment, float* out, Index threads) {
    return unless_out_of_memory([&] { Forward(*segment, threads).run(out); });
}

EXPORTED int archloom_recurrent_backward(
    const Segment* segment, const float* output, float* given, float* start, float* shares, Index threads
) {
    return unless_out_of_memory([&] {
        Backpropagation(*segment, Gradients{output, given, start, shares}, threads).run();
    });
}

EXPORTED int archloom_recurrent_weights(const Segment* segment, float* matrix, float* matrices, Index threads) {
    return unless_out_of_memory([&] { WeightGradients(*segment, threads).run(matrix, matrices); });
}

EXPORTED int archloom_decoder(const Decoder* decoder, float* losses, Index threads) {
    return unless_out_of_memory([&] { CrossEntropy(*decoder, threads).run(losses); });
}

EXPORTED int archloom_decoder_backward(const Decoder* decoder, const float* losses, float* states, Index threads) {
    return unless_out_of_memory([&] { DecoderGradient(*decoder, losses, threads).run(states); });
}

EXPORTED int archloom_decoder_weights(const Decoder* decoder, float* weights, float* bias, Index threads) {
    return unless_out_of_memory([&] { DecoderWeights(*decoder, threads).run(weights, bias); });
}
